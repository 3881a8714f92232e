"""The similarity join on Spark."""
