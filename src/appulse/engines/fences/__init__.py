"""Fence events: a checked call, and its bucket."""
