"""Results in, pictures out. Nothing here knows Spark; matplotlib is imported when something is drawn."""
