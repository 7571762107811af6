"""Imported model -> normal form -> regions -> rewritten graph -> executable."""

from .normalize import normalize
from .regions import Region, Regions, find_regions, select
from .rewrite import rewrite

__all__ = ["Region", "Regions", "find_regions", "normalize", "rewrite", "select"]
