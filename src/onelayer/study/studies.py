"""Every study by its name, in the order in which they are run."""

from __future__ import annotations

from onelayer.study import NAMES
from onelayer.study.depth import DEPTH
from onelayer.study.digits import DIGITS
from onelayer.study.kinds import KINDS_STUDY
from onelayer.study.precision import PRECISION
from onelayer.study.sizes import HEADS, MEMORY, WIDTH
from onelayer.study.study import Study
from onelayer.study.trainability import TRAINABILITY

_WRITTEN = (HEADS, WIDTH, MEMORY, DEPTH, KINDS_STUDY, TRAINABILITY, PRECISION, DIGITS)
STUDIES: dict[str, Study] = dict(zip(NAMES, _WRITTEN, strict=True))
