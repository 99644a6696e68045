"""The 100 equations of the public AI Feynman database: how many are proved through the default door.

python benchmarks/feynman.py [--eps 0.01] [--seconds 60] [--jobs 1] [--only I.40.1 II.35.21]
python benchmarks/feynman.py --inversion [--seconds 60] [--jobs 1] [--resume]

feynman.csv numbers the variables in the order of the database (Udrescu & Tegmark 2020, Feynman Symbolic Regression
Database). door.py explains the options.
"""

from pathlib import Path

import door

EQUATIONS = door.table(Path(__file__).parent / "feynman.csv")

if __name__ == "__main__":
    door.main(EQUATIONS, "feynman", __doc__)
