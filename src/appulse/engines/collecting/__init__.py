"""Readings to samples: the call and its bucket."""
