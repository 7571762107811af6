"""Shared parts of the benchmarks: networks, systems, timing, worker processes, rows and tables."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for tests.benchmark_networks
