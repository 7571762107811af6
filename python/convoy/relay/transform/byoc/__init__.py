"""Bring your own code generator: parts of a network as functions of an external compiler.

`MergeComposite` makes functions of patterns, `AnnotateTarget` marks what a compiler takes,
`MergeCompilerRegions` joins neighbours, and `PartitionGraph` makes functions of the module. Convoy
compiles such functions as any other; they are for compilers that a script calls itself.
"""

from convoy.relay.transform.byoc.annotate import AnnotateTarget
from convoy.relay.transform.byoc.composite import MergeComposite
from convoy.relay.transform.byoc.merge import MergeCompilerRegions
from convoy.relay.transform.byoc.partition import PartitionGraph

__all__ = ["AnnotateTarget", "MergeCompilerRegions", "MergeComposite", "PartitionGraph"]
