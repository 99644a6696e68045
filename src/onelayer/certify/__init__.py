"""Proofs of sup|T - f| <= eps: Taylor models, branch and bound, certificates, and the independent checker."""

from onelayer.certify.certificate import Certificate
from onelayer.certify.door import certify

__all__ = ["Certificate", "certify"]
