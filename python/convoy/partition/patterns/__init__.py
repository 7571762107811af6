"""The patterns that find subgraphs: built-in ones, those of backends, and those of other packages
(entry points in the group ``convoy.patterns``, each a Pattern class)."""

from .base import GraphView, Pattern, Site
from .explicit import Explicit
from .grown import Grown
from .registry import register, registered, unregister

__all__ = [
    "Explicit",
    "GraphView",
    "Grown",
    "Pattern",
    "Site",
    "register",
    "registered",
    "unregister",
]
