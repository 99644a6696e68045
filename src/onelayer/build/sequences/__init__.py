"""Parts of the constructions in which tokens stay tokens: gather and superpose.

Both write f as a sum of terms g(s), s a sum of w phi(x). A term is read off the formula or fitted (FormulaTerm:
formulas and exact weights), placed at an output with a weight for every token (PlacedTerm), made of hidden units
(Units), and stated in the argument of the proof (TokenTerm, in lemmas).
"""
