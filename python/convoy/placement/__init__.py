"""Select a kernel for every subgraph of a network, or leave it to TVM.

:func:`~convoy.placement.select.select` gets match graphs and the offers for their workloads, finds
the cheapest cover under the objective, exactly or by evolutionary search, and returns a
:class:`~convoy.placement.placement.Placement` with its :class:`~convoy.ir.plan.Plan`.
"""
