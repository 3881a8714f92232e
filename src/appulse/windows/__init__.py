"""Which rows are in reach: definitions of windows, frozen and engine-free."""
