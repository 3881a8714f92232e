"""One deterministic state machine per operator, free of any engine."""
