"""Training and distillation by gradient descent, and estimators on tables."""
