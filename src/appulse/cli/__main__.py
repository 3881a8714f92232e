"""``python -m appulse.cli``."""

from appulse.cli import main

main()
