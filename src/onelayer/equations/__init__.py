"""The paper's equations in NumPy: the reference that the layer is tested against."""
