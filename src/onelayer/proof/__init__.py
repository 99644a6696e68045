"""Proofs of sup|T - f| <= eps: error function, search, witness, claim and files."""
