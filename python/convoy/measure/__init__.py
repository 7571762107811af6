"""Time candidates and whole networks on the GPU, and check their results in float64.

:class:`~convoy.measure.problem.Problem` has a workload's inputs and reference results,
:mod:`.protocol` times a candidate into a :class:`~convoy.ir.measurement.Measurement`, and
:mod:`.network` times compiled networks alternately.
"""
