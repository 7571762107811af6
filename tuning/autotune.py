#!/usr/bin/env python3
"""Tune networks or workload lists on this machine's GPUs; the same as ``convoy tune``.

    python tune/autotune.py model.onnx --trials 24
    python tune/autotune.py tuning/workloads/*.jsonl --seconds 600 --records records.jsonl

From Python, for a Relax module that is not in a file::

    from convoy.pipeline import workloads_of
    from convoy.tune.autotune import autotune

    outcome = autotune(workloads_of(module))
"""

import sys

from convoy.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "tune")
    main()
