"""Estimators on tables with scikit-learn's manners, whose trained layer is an ordinary one."""
