"""Networks on one stream and on several, each called asynchronously and replayed as a CUDA graph.

Used by ``bench_models.py --networks``. A network is placed once; what is compared differs in
nothing but streams and capture. All four ways are timed in turns in one fresh process, on the same
inputs, and their outputs are compared. Networks of one batch size are compiled side by side; then
one after the other is timed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from networks import TORCHVISION, network
from prepared import Prepared, ready

# name -> (file of the module, whether sessions replay a graph)
WAYS = {
    "one stream": ("single", False),
    "streams": ("multi", False),
    "one stream, graph": ("single", True),
    "streams, graph": ("multi", True),
}
ROUNDS, SAMPLES, BURST_MS = 5, 10, 10.0
COLUMNS = (
    "network",
    "N",
    *(f"{way} ms" for way in WAYS),
    "gain",
    "streams",
    "decided by",
    "predicted",
    "arena MB (one stream)",
    "eager+graph ms",
    "compile ms",
    "error",
)


def build_both(name: str, batch: int, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Compile a network on one stream and on as many as pay, both from one placement."""
    import convoy
    from convoy.pipeline import compile_placement

    clock = Clock()
    module = network(name, batch)
    facts: dict[str, Any] = {"import_s": clock.lap()}
    placement = convoy.place(module, **options)
    facts["place_s"] = clock.lap()
    kept = {k: options[k] for k in ("precision", "backends") if k in options}
    for label, streams in (("single", 1), ("multi", "auto")):
        built = compile_placement(placement, "cuda", streams=streams, **kept)
        built.export_library(folder / f"{label}.so")
        facts[f"build_{label}_s"] = clock.lap()
    schedule = built.schedule
    if schedule is not None:
        (folder / "schedule.json").write_text(schedule.dumps())
        trial = schedule.trial
        facts |= {
            "streams": schedule.streams,
            "decided_by": schedule.decided_by,
            "note": schedule.note,
            "predicted_single_us": schedule.single_us,
            "predicted_us": schedule.makespan_us,
            "trial": dataclasses.asdict(trial) if trial else None,
            "arena_bytes": schedule.memory.peak_bytes,
            "single_arena_bytes": schedule.memory.single_stream_bytes,
        }
    return facts | {"backends": placement.plan.backends()}


class Clock:
    """Seconds since it was made or asked last."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def lap(self) -> float:
        since, self._since = self._since, time.perf_counter()
        return round(self._since - since, 1)


def worker(*arguments: Any) -> Prepared:
    """The process of ``convoy FOLDER NAME BATCH OPTIONS`` or ``PEER NAME BATCH``."""
    return Prepared([sys.executable, __file__, *map(str, arguments)])


def work(arguments: list[str]) -> Any:
    """What such a process does; returns its result. Having compiled a network it starts itself
    anew, so that what is timed is what was exported, in a fresh process."""
    if arguments[0] == "exported":
        folder = Path(arguments[1])
        facts = json.loads((folder / "facts.json").read_text())
        found = time_in_turns(folder)
        return [{"system": f"convoy, {way}", **facts, **found[way]} for way in WAYS]
    if arguments[0] == "convoy":
        _, folder, name, batch, options = arguments
        facts = build_both(name, int(batch), Path(folder), json.loads(options))
        (Path(folder) / "facts.json").write_text(json.dumps(facts))
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, __file__, "exported", folder])
    system, name, batch = arguments
    return peer_row(system, name, int(batch))


def time_in_turns(folder: Path) -> dict[str, dict[str, float]]:
    """Milliseconds of one run of each way, calls enqueued back to back, the ways in turns; and the
    largest relative difference of the outputs from those on one stream, fresh inputs each time."""
    import convoy
    from convoy.runtime.compiled import CompiledModule

    sessions = {}
    for way, (file, cuda_graph) in WAYS.items():
        built = convoy.load(folder / f"{file}.so")
        meta = dataclasses.replace(built.meta, cuda_graph=cuda_graph)
        sessions[way] = CompiledModule(built.module, meta).session()
    errors = dict.fromkeys(WAYS, 0.0)
    rng = np.random.default_rng()
    info = next(iter(sessions.values())).input_info
    for _ in range(3):
        inputs = [rng.uniform(-1, 1, shape).astype(dtype) for _, shape, dtype in info]
        outputs = {way: session(*inputs) for way, session in sessions.items()}
        for way, found in outputs.items():
            for y, exact in zip(found, outputs["one stream"], strict=True):
                difference = np.linalg.norm(y.astype("float64") - exact.astype("float64"))
                error = float(difference / np.linalg.norm(exact.astype("float64")))
                errors[way] = max(errors[way], error)
    ready()
    number = {}
    for way, session in sessions.items():
        rough = statistics.median(session.time(repeat=3, number=3))
        number[way] = max(1, min(100, int(BURST_MS / rough)))
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    latency: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, session in sessions.items():
            samples[way] += session.time(SAMPLES, number[way])
            latency[way] += session.time(SAMPLES, 1)
    result = {}
    for way, values in samples.items():
        low, high = np.percentile(values, [10, 90])
        result[way] = {
            "ms": statistics.median(values),
            "spread_ms": float(high - low) / 2,
            "latency_ms": statistics.median(latency[way]),
            "error": errors[way],
            "samples": len(values),
        }
        result[way]["gain"] = statistics.median(samples["one stream, graph"]) / statistics.median(
            samples["streams, graph"]
        )
    return result


def table_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """A row of the printed table for each network and batch size."""
    found = []
    for model, batch in dict.fromkeys((row["model"], row["batch"]) for row in rows):
        mine = {r["system"]: r for r in rows if (r["model"], r["batch"]) == (model, batch)}
        ways = [mine.get(f"convoy, {way}", {}) for way in WAYS]
        facts = ways[-1]
        predicted = facts.get("predicted_us")
        error = max((row["error"] for row in ways if "error" in row), default=None)
        gain, streams = facts.get("gain"), facts.get("streams")
        if streams == 1 and (trial := facts.get("trial")):
            streams = f"1 (several: {trial['single_us'] / trial['multi_us']:.2f}x)"
        found.append(
            (
                model,
                batch,
                *(f"{row['ms']:.4f}" if "ms" in row else None for row in ways),
                f"{gain:.2f}x" if gain else None,
                streams,
                facts.get("decided_by"),
                f"{predicted / 1e3:.4f}" if predicted else None,
                _arena(facts),
                *(
                    f"{mine[peer]['ms']:.3f}" if "ms" in mine.get(peer, {}) else None
                    for peer in ("eager", "compile")
                ),
                None if error is None else f"{error:.0e}",
            )
        )
    return found


def _arena(facts: dict[str, Any]) -> str | None:
    """Megabytes of the arena, and of the same operations' on one stream."""
    if facts.get("arena_bytes") is None:
        return None
    return f"{facts['arena_bytes'] / 1e6:.1f} ({facts['single_arena_bytes'] / 1e6:.1f})"


def peer_row(system: str, name: str, batch: int) -> dict[str, Any]:
    """A row of PyTorch on the same network, under the name that it has here. What eager mode does
    is tuned by measuring, so all of that waits for its turn; compiling does not."""
    from bench_peers import time_peer

    if name not in TORCHVISION:
        return {"skipped": "PyTorch's collection lacks it"}
    import torchvision  # noqa: F401  before its turn

    if system != "compile":
        ready()
    gate = {"before": ready} if system == "compile" else {}
    return {**time_peer(system, TORCHVISION[name], batch, **gate), "model": name}


if __name__ == "__main__":
    print(json.dumps(work(sys.argv[1:])))
