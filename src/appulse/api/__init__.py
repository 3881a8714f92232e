"""The public functions: check the arguments, pick the engine."""
