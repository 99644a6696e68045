"""Lemmas: bounds of |T - f| that hold by an argument instead of boxes, one file each."""
