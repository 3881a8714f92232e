"""Sensor joins and phenomena."""
