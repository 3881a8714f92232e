"""Sensor joins and phenomena on Spark."""
