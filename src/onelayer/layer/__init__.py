"""The layer: one-layer Transformers with memory, their attention kinds, weights and file."""
