"""Public test functions of other fields through the default door: how many are proved?

python benchmarks/functions.py [--eps 0.01] [--seconds 60] [--jobs 1] [--only Branin "Keijzer-4"]
python benchmarks/functions.py --inversion [--seconds 60] [--jobs 1] [--resume]

functions.csv has suites of symbolic regression (Nguyen, Keijzer, Livermore, Korns, Vladislavleva, Jin, Pagie, Meier,
rationals), test functions of optimisation and of sensitivity analysis, and formulas of physics and engineering with
kinks, pieces and angles, on their usual domains. Nothing in the package was made for one of them. door.py explains the
options.
"""

from pathlib import Path

import door

FUNCTIONS = door.table(Path(__file__).parent / "functions.csv")

if __name__ == "__main__":
    door.main(FUNCTIONS, "functions", __doc__)
