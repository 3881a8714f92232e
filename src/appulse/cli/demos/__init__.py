"""The demonstrations: real data that came with pip, a job file, a picture."""
