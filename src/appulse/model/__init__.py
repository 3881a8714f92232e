"""What flows: uncertain objects, the streams they come from, and the defects of bad rows."""
