"""Examples: ``python examples/NAME.py``. What has no data at hand runs on a generated twin."""
