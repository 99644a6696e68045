"""What f may be: formula text, torch callable, nn.Module, black box with a Lipschitz constant, table."""

from onelayer.target.endpoints import parse_domain
from onelayer.target.formula import Formula, parse

__all__ = ["Formula", "parse", "parse_domain"]
