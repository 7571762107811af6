"""Measurements of candidates: read from records, taken on this machine, or estimated.

A :class:`~convoy.cost.model.CostModel` gives the measurements of a workload's candidates.
:func:`~convoy.cost.price.price` asks it about every workload of a network, and returns
:class:`~convoy.ir.offer.Offers` adjusted to the conditions inside a network: caches, and launches
behind other kernels.
"""
