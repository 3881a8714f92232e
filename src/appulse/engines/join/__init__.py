"""The similarity join."""
