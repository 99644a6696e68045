"""Studies: sweeps that go on after a kill, laws with confidence, and the questions of the paper's second half."""

from onelayer.study.depth import DEPTH
from onelayer.study.digits import DIGITS
from onelayer.study.kinds import KINDS_STUDY
from onelayer.study.laws import Law, best_law, fit_law
from onelayer.study.precision import PRECISION
from onelayer.study.sizes import HEADS, MEMORY, WIDTH
from onelayer.study.study import Findings, Study, run_study
from onelayer.study.trainability import TRAINABILITY

STUDIES: dict[str, Study] = {
    study.name: study for study in (HEADS, WIDTH, MEMORY, DEPTH, KINDS_STUDY, TRAINABILITY, PRECISION, DIGITS)
}

__all__ = ["STUDIES", "Findings", "Law", "Study", "best_law", "fit_law", "run_study"]
