"""Sources and sinks of jobs that run in this process, without Spark."""
