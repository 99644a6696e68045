"""Parts of the constructions in which tokens stay tokens: gather and superpose."""
