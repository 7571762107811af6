"""Imported model -> normal form -> regions -> rewritten graph -> executable."""

from .lower import lower
from .normalize import normalize
from .regions import Region, Regions, find_regions, select
from .rewrite import rewrite

__all__ = ["Region", "Regions", "find_regions", "lower", "normalize", "rewrite", "select"]
