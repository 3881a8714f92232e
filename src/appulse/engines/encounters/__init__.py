"""Encounters of moving things: a checked call, and its bucket."""
