"""What a call from PyTorch takes beyond the replay of its CUDA graph.

    python tests/gpu/call_overhead.py [MODEL ...]          (default: googlenet, float16, N=1)

Microseconds of a synchronized call, medians of alternating rounds: of the callable that
``convoy.compile`` returns (inputs copied in, results copied out), of the session's bare replay, and
their difference; then what each keeps the host busy where nothing is waited for.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torchvision import models

import convoy
from convoy.pytorch.runner import GraphRunner

ROUNDS, CALLS = 15, 100


def microseconds(call: Callable[[], object], wait_each: bool) -> float:
    """Of one call."""
    torch.cuda.synchronize()
    spent = 0.0
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        if wait_each:
            torch.cuda.synchronize()
        spent += time.perf_counter() - start
        if not wait_each:  # the queue stays empty
            torch.cuda.synchronize()
    return 1e6 * spent / CALLS


@torch.no_grad()
def measure(name: str) -> None:
    """Print the two lines of a model."""
    torch.manual_seed(0)
    net = getattr(models, name)(weights=None).eval().half().cuda()
    x = torch.randn(1, 3, 224, 224, dtype=torch.float16, device="cuda")
    compiled = convoy.compile(net, (x,), measure=False)
    runner = compiled._run
    assert isinstance(runner, GraphRunner), runner
    calls: dict[str, Callable[[], object]] = {
        "convoy.compile": lambda: compiled(x),
        "inputs in place": lambda: compiled(*runner.inputs),
        "bare replay": runner._session.run,
    }
    for wait_each in (True, False):
        found: dict[str, list[float]] = {label: [] for label in calls}
        for _ in range(ROUNDS):
            for label, call in calls.items():
                found[label].append(microseconds(call, wait_each))
        medians = {label: statistics.median(values) for label, values in found.items()}
        over = medians["convoy.compile"] - medians["bare replay"]
        kind = "synchronized call" if wait_each else "host time of a call"
        text = ", ".join(f"{label} {value:.1f}" for label, value in medians.items())
        print(f"{name} N=1, {kind}, us: {text}; beyond the replay {over:.1f}", flush=True)


if __name__ == "__main__":
    for model in sys.argv[1:] or ["googlenet"]:
        measure(model)
