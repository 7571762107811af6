"""Kernels that a subgraph can run on: a :class:`~convoy.backends.base.Backend` for each source.

A backend gets a :class:`~convoy.ir.workload.Workload` and a :class:`~convoy.ir.device.Device`. It
proposes a :class:`~convoy.ir.candidate.Candidate` for each kernel that computes the workload, or
declines with a reason, and builds a selected candidate into an entry for the C++ runtime.
"""
