"""Lookup heads: fitted keys on one axis, tensor and sparse grids, additive groups, kinks as ReLU units."""
