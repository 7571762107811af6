"""Layout rules: one for each operator, in the file of its family."""

from convoy.relay.transform.layouts.rules import (
    along,
    elementwise,
    joining,
    named,
    slicing,
)
from convoy.relay.transform.layouts.rules.rule import RULES, InferCorrectLayoutOutput, Layouts

__all__ = [
    "RULES",
    "InferCorrectLayoutOutput",
    "Layouts",
    "along",
    "elementwise",
    "joining",
    "named",
    "slicing",
]
