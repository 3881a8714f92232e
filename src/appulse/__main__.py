"""``python -m appulse``: the command line."""

from appulse.cli import main

if __name__ == "__main__":
    main()
