"""Standing queries over the windows of several streams on Spark."""
