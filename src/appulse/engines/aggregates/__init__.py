"""Aggregates of windows."""
