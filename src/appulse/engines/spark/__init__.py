"""The engine on Spark: batch and Structured Streaming through PySpark."""
