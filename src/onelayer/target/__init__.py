"""What f may be: formula text, torch callable, nn.Module, or a black box with a Lipschitz constant."""

from onelayer.target.endpoints import parse_domain, parse_point
from onelayer.target.formula import Formula, parse
from onelayer.target.record import record
from onelayer.target.target import Target, as_target

__all__ = ["Formula", "Target", "as_target", "parse", "parse_domain", "parse_point", "record"]
