"""Shared parts of the benchmarks: networks, systems, timing, worker processes, rows and tables."""
