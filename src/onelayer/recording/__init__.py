"""What f may be: torch code is recorded as a formula; tables and black boxes stand beside it."""
