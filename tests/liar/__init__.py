"""The liar: random claims of the package, each tried where it is most likely to be false.

Nothing here trusts the arithmetic under attack. Functions are the liar's own trees with their own evaluation in balls,
layers are evaluated anew in balls, and executed values come from plain torch. What is found false is written down with
the seed that finds it again.
"""
