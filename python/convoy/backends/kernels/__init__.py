"""Kernels that nvcc compiles from ``codegen/``: one backend class, and a package for each family.

A family maps a workload to kernel configurations. :mod:`.compile` makes a library of each, which
:mod:`.cache` keeps by the hash of its source and :mod:`.shipped` holds ready.
"""
