"""Anyone's network as plain data: a short list of operations on tensors, recorded, read from a file, run and saved."""
