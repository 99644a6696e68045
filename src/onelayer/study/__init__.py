"""Studies: sweeps that go on after a kill, laws with confidence, and the questions of the paper's second half."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onelayer.lazy import public

if TYPE_CHECKING:
    from onelayer.study.laws import Law, best_law, fit_law
    from onelayer.study.studies import STUDIES
    from onelayer.study.study import Findings, Study, run_study

# The command line lists them without loading what they measure with.
NAMES = ("heads", "width", "memory", "depth", "kinds", "trainability", "precision", "digits")

__all__ = ["NAMES", "STUDIES", "Findings", "Law", "Study", "best_law", "fit_law", "run_study"]

__getattr__, __dir__ = public(
    __name__,
    {
        "Findings": "study.study",
        "Law": "study.laws",
        "STUDIES": "study.studies",
        "Study": "study.study",
        "best_law": "study.laws",
        "fit_law": "study.laws",
        "run_study": "study.study",
    },
)
