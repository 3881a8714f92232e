"""Contestants that run in environments of their own: no module here is imported by another."""
