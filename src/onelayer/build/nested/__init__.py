"""Composition inside one packed layer: lookup heads are inner functions, ReLU units outer ones."""
