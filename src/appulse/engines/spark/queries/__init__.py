"""Standing queries over the rows of one stream on Spark."""
