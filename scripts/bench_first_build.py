#!/usr/bin/env python3
"""Time the first build of torchvision's networks on a machine where nothing is cached.

    python scripts/bench_first_build.py resnet50:1 resnet50:8 vit_b_16:1 --out first_build.json
    python scripts/bench_first_build.py resnet50:1 --systems shipped all compile --no-records

Each system runs in a fresh process with a cache folder of its own. ``shipped`` is convoy.build by
default, ``again`` the same once more with the cache that the first one left, ``all`` compiles and
measures every kernel; ``compile`` is the first call of torch.compile (weights frozen, CUDA
graphs), ``autotune`` the same in its mode max-autotune. ``resnet50_training`` is the training step
of ResNet-50. Seconds do not hold imports and, for Convoy, the import of the network, which stand
beside them. Outputs (of a training step the loss) are compared with PyTorch in float32 before a
row counts.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness.prepared import caches_in, run_alone
from harness.rows import Bench, Row

OPTIONS: dict[str, dict[str, Any]] = {
    "shipped": {},
    "again": {},
    "all": {"kernels": "all", "budget": None},
}
#: Modes of torch.compile, which capture CUDA graphs.
MODES = {"compile": "reduce-overhead", "autotune": "max-autotune"}
#: The same for a training step, which is captured as a whole.
UNCAPTURED = {"compile": "default", "autotune": "max-autotune-no-cudagraphs"}
SYSTEMS = (*OPTIONS, *MODES, "eager")
#: Relative L2 error that float16 may have; torch.compile has 0.062 on a random Inception-v3.
LARGEST_ERROR = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK:BATCH")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=["shipped", "compile"])
    parser.add_argument("--no-records", action="store_true", help="hide the shipped records")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one process")
    parser.add_argument("--out", default="")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(**json.loads(options.child))))
        return
    bench = Bench("first build", options.out)
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for text in options.networks:
            name, _, batch = text.partition(":")
            for system in options.systems:
                fixed = {"network": name, "N": int(batch or 1), "system": system}
                caches = Path(folder) / text / ("shipped" if system == "again" else system)
                run = functools.partial(
                    in_process, fixed, caches, options.no_records, options.timeout
                )
                cases.append((fixed, run))
        bench.run(cases)
    for row in bench.rows:
        cells = ("network", "N", "system", "seconds", "ms", "error", "import_s", "failed")
        print(*(f"{key}={row[key]}" for key in cells if key in row))
    raise SystemExit(bench.failures())


def in_process(fixed: Row, caches: Path, no_records: bool, timeout: float) -> Row:
    """Run one case in a process whose caches are its own."""
    caches.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, **caches_in(caches)}
    if no_records:
        env["CONVOY_RECORDS_DIR"] = str(caches / "no_records")
    case = {"name": fixed["network"], "batch": fixed["N"], "system": fixed["system"]}
    command = [sys.executable, __file__, "--child", json.dumps(case)]
    row: Row
    row, errors = run_alone(command, env, timeout)
    if stages := re.findall(r"^convoy: (.*): ([\d.]+) s$", errors, re.MULTILINE):
        row["stages"] = {name: float(seconds) for name, seconds in stages}
    return row


def child(name: str, batch: int, system: str) -> Row:
    """Build one network and time it; run in a process of its own."""
    started = time.perf_counter()
    if name == "resnet50_training":
        return training_step(batch, system, started)
    import torch

    from harness import models

    model, shape = models.make(f"torchvision.{name}", "cuda")
    x = torch.randn(batch, *shape)
    with torch.no_grad():
        exact = model(x.cuda()).float().cpu()
    runs = {**dict.fromkeys(OPTIONS, built_by_convoy), **dict.fromkeys(MODES, compiled_by_torch)}
    run = runs.get(system, captured)
    row, y = run(model, x, system, started)
    row["error"] = float((y - exact).norm() / exact.norm())
    if not row["error"] < LARGEST_ERROR:
        raise RuntimeError(f"relative L2 error {row['error']}")
    return row


def built_by_convoy(model: Any, x: Any, system: str, started: float) -> tuple[Row, Any]:
    """Import, build, run and time with Convoy."""
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    import convoy

    imported = time.perf_counter()
    module = from_exported_program(torch.export.export(model.cpu(), (x,)))
    began = time.perf_counter()
    built = convoy.build(module, "cuda", objective="graph", **OPTIONS[system])
    ready = time.perf_counter()
    session = built.session()
    (y,) = session(x.numpy())
    assert built.schedule and built.plan, "of a GPU"
    row = {
        "seconds": round(ready - began, 2),
        "first_call_s": round(time.perf_counter() - ready, 2),
        "import_s": round(imported - started, 2),
        "convert_s": round(began - imported, 2),
        "ms": round(statistics.median(session.time(20, 20)), 4),
        "predicted_ms": round(built.schedule.total.us / 1e3, 4),
        "backends": built.plan.backends(),
    }
    return row, torch.from_numpy(y).float()


def training_step(batch: int, system: str, started: float) -> Row:
    """Build and time the training step of ResNet-50 with Convoy or torch.compile."""
    import torch

    import convoy
    from convoy.training import Sgd, TrainingSession, resnet50
    from harness import torch_training, training

    x, labels = training.data(batch)
    net = resnet50(batch)
    exact = torch_training.Step("float32", x, labels, net.initial, 0.0)
    exact()
    imported = time.perf_counter()
    row: Row = {"import_s": round(imported - started, 2)}
    if system in OPTIONS:
        step = net.step(Sgd(training.MOMENTUM))
        began = time.perf_counter()
        built = convoy.build(step.module, "cuda", precision="float16", **OPTIONS[system])
        row["seconds"] = round(time.perf_counter() - began, 2)
        row["convert_s"] = round(began - imported, 2)
        session = TrainingSession(built, step, net.initial, 0.0)
        loss = session(x=x, labels=labels)
        row["ms"] = round(statistics.median(session.session.time(20, 20)), 4)
    else:
        peer = torch_training.Step("amp", x, labels, net.initial, 0.0)
        if system in MODES:
            peer.model = torch.compile(peer.model, mode=UNCAPTURED[system])
        began = time.perf_counter()
        peer()
        loss = peer.loss.item()
        row["seconds"] = round(time.perf_counter() - began, 2)
        row["ms"] = milliseconds(peer.captured())
    row["error"] = abs(loss - exact.loss.item()) / exact.loss.item()
    if not row["error"] < LARGEST_ERROR:
        raise RuntimeError(f"loss {loss}, {exact.loss.item()} in float32")
    return row


def compiled_by_torch(model: Any, x: Any, system: str, started: float) -> tuple[Row, Any]:
    import torch

    from harness import torch_inference

    half = model.cuda().half().to(memory_format=torch.channels_last)
    x = x.cuda().half().to(memory_format=torch.channels_last)
    compiled = torch_inference.frozen(half, MODES[system])
    began = time.perf_counter()
    with torch.no_grad():
        y = compiled(x).float().cpu()
        seconds = time.perf_counter() - began
        for _ in range(5):
            compiled(x)
        ms = milliseconds(functools.partial(compiled, x))
    row = {
        "seconds": round(seconds, 2),
        "import_s": round(began - started, 2),
        "ms": ms,
    }
    return row, y


def captured(model: Any, x: Any, system: str, started: float) -> tuple[Row, Any]:
    """PyTorch without a compiler: cuDNN's own search, batch norms folded, one CUDA graph."""
    import torch

    from harness import torch_inference

    folded, _ = torch_inference.folded(model)
    half = folded.half().to(memory_format=torch.channels_last)
    x = x.cuda().half().to(memory_format=torch.channels_last)
    began = time.perf_counter()
    with torch.no_grad():
        run, y = torch_inference.captured(half, x)
    run.synchronize()
    seconds = time.perf_counter() - began
    found = y.float().cpu()
    times = {"seconds": round(seconds, 2), "import_s": round(began - started, 2)}
    return {**times, "ms": milliseconds(run.call)}, found


def milliseconds(run: Any) -> float:
    """Median of 30 times ten calls on the GPU."""
    import torch

    samples = []
    for _ in range(30):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            run()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) / 10 * 1e3)
    return round(statistics.median(samples), 4)


if __name__ == "__main__":
    main()
