"""Proofs by argument: lemmas whose constants are computed and checked, and composition of one-dimensional proofs."""
