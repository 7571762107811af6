"""Subgraphs that one kernel can compute.

:func:`~convoy.partition.partition.partition` turns a module in normal form into a
:class:`~convoy.partition.match_graph.MatchGraph`: its operations, and all matches of the registered
:mod:`~convoy.partition.patterns`, which may overlap, each with its workload.
:func:`~convoy.partition.rewrite.rewrite` replaces the selected ones by calls.
"""
