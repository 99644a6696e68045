"""The paper, executed: every claim of the source paper as an experiment, and the report that collects them."""

from onelayer.paper.finding import Check, Experiment, Finding, Setting
from onelayer.paper.registry import SECTIONS, chosen, experiments
from onelayer.paper.report import PaperReport, write_report

__all__ = [
    "SECTIONS",
    "Check",
    "Experiment",
    "Finding",
    "PaperReport",
    "Setting",
    "chosen",
    "experiments",
    "write_report",
]
