"""Terms: what every construction that composes is made of, g(s) with s a sum of w phi.

    phi     inner function of one number: an Atom of a token, an Inner along a direction; or a SharpHead
    s       the sum of w phi that attention and W_1 form
    g       outer function of one number: ``constant`` + the hidden units of the term are close to it

A TokenTerm sums over tokens, a RidgeTerm over the sums of an outer function of several, a CurveTerm over sharp heads.
"""

from __future__ import annotations

from onelayer.language.formula import Formula, parse


class OfOneVariable:
    """A function of one variable that an argument states as text: the phi and the g of a term."""

    text: str

    @property
    def formula(self) -> Formula:
        """The function; its text was written by this package and may be as long as it is."""
        return parse(self.text, 1, limit=len(self.text))
