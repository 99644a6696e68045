"""The two ways in which a claim is not accepted."""

from __future__ import annotations

from onelayer.errors import OnelayerError


class Rejected(OnelayerError):
    """A claim that does not hold, or has no proof in these files; the message is one line."""


class Crowded(Rejected):
    """More coefficients than an arithmetic takes: floats have a limit, then balls; a lower order may do with fewer."""


class NotConfirmed(OnelayerError):
    """A claim that could be neither re-proved nor contradicted; the message is one line."""
