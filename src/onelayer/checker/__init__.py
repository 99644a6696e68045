"""The independent checker: re-proves a saved folder with its own reader, operations and ball arithmetic."""
