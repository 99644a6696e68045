"""Seeds of everything random: the numbers that torch's and NumPy's generators both accept."""

from __future__ import annotations

# Generators take 64 bits; what is added to a seed for a second stream must still fit.
MAX_SEED = 2**62
