"""Convoy's systems on one network: placed, compiled and timed in turns in a fresh process.

The parent starts a worker for each network and batch size (:func:`worker`); workers compile side by
side and are timed one after the other. A worker that has compiled its systems starts itself anew,
so that the exported modules are timed. Systems differ in backends, objective, search, streams or
run mode; equal placements and modules are made once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import networks
from .prepared import Prepared, ready
from .rows import Row
from .timing import Run, measure_in_turns

Array = np.ndarray[Any, Any]
DRIVER = Path(__file__).resolve().parents[1] / "bench_networks.py"
ALL = ("cudnn", "cutlass", "hopper", "tvm")
#: Runs on fresh inputs before timing: as calls, captured, replayed.
RUNS = 3
#: Relative L2 error against float64 beyond which a system is not timed.
LIMIT = 1e-2
#: Run modes that need a process with another environment.
ENVIRONMENTS = {"sync": {"CUDA_LAUNCH_BLOCKING": "1"}}


@dataclass(frozen=True)
class System:
    """One way to place, compile and run a network.

    ``mode``: "graph" (replayed as one CUDA graph), "stream" (asynchronous launches) or "sync"
    (CUDA_LAUNCH_BLOCKING=1: a synchronization after every launch).
    """

    name: str
    backends: tuple[str, ...] = ALL
    streams: int | str = 1
    mode: str = "graph"
    objective: str = "graph"
    search: str = "exact"

    @classmethod
    def from_json(cls, data: Row) -> System:
        return cls(**{**data, "backends": tuple(data["backends"])})

    @property
    def placement(self) -> str:
        """Equal for systems that are placed alike."""
        return "-".join([*self.backends, self.objective, self.search])

    @property
    def module(self) -> str:
        """Name of the exported module; equal for systems that are compiled alike."""
        return f"{self.placement}-{self.streams}.so"


SYSTEMS = {
    "cudnn": System("cuDNN alone", ("cudnn", "tvm")),
    "cutlass": System("CUTLASS alone", ("cutlass", "tvm")),
    "tvm": System("TVM alone", ("tvm",)),
    "placed": System("placed"),
    "streams": System("streams", streams="auto"),
    "placed-async": System("placed, asynchronous", mode="stream"),
    "streams-async": System("streams, asynchronous", streams="auto", mode="stream"),
    "two-streams": System("two streams", streams=2),
    "evolved": System("evolved, streams", streams="auto", search="evolve"),
}


def command(**task: Any) -> list[str]:
    """The command of a worker process with this task."""
    return [sys.executable, str(DRIVER), "worker", json.dumps(task)]


def worker(
    network: str, batch: int, systems: Sequence[System], folder: Path, options: Row
) -> Prepared:
    """A process that places, compiles, loads and times systems of one environment.

    Args:
        network: Name in networks.NETWORKS.
        batch: Batch size.
        systems: Systems to time in turns.
        folder: Exported modules; those that lie there already are not compiled again.
        options: precision; records, measure, most_measured of convoy.place; seconds of timing;
            build_only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = [dataclasses.asdict(system) for system in systems]
    changes = ENVIRONMENTS.get(systems[0].mode, {})
    task = {"network": network, "batch": batch, "systems": found, "folder": str(folder)}
    return Prepared(command(task="build", options=options, **task), {**os.environ, **changes})


def work(task: Row) -> list[Row]:
    """Do what such a process has to do; returns its rows."""
    systems = [System.from_json(data) for data in task["systems"]]
    folder, options = Path(task["folder"]), task["options"]
    if task["task"] == "build":
        build(task["network"], task["batch"], systems, folder, options)
        if not options.get("build_only"):
            sys.stdout.flush()
            os.execv(sys.executable, command(**{**task, "task": "time"}))
        return [_row(folder, system) for system in systems]
    return time_systems(task["network"], task["batch"], systems, folder, options)


def build(network: str, batch: int, systems: Sequence[System], folder: Path, options: Row) -> None:
    """Place, compile and export the modules that the folder lacks; beside each a JSON file has its
    facts, or the reason why it ``failed``."""
    todo = [s for s in systems if not _is_built(folder, s)]
    if not todo:
        return
    module = networks.network(network, batch)
    for system in {s.module: s for s in todo}.values():
        facts: Row = {}
        started = time.perf_counter()
        try:
            facts |= _build(module, system, folder, options)
        except Exception as err:  # one system that fails must not end the comparison
            facts["failed"] = f"{type(err).__name__}: {err}"[-1500:]
        facts["build_s"] = round(time.perf_counter() - started, 1)
        (folder / system.module).with_suffix(".json").write_text(json.dumps(facts))


def _build(module: Any, system: System, folder: Path, options: Row) -> Row:
    import convoy
    from convoy.ir.plan import Plan
    from convoy.placement.explain import predicted_us

    precision, backends = options.get("precision", "float16"), system.backends
    path = folder / f"{system.placement}.plan.json"
    if path.is_file():
        plan = Plan.loads(path.read_text())
    else:
        asked = {k: options[k] for k in ("records", "measure", "most_measured") if k in options}
        plan = convoy.place(
            module, precision=precision, backends=backends, objective=system.objective,
            search=system.search, **asked,
        ).plan  # fmt: skip
        _replace(path, lambda part: part.write_text(plan.dumps()))
    built = convoy.build(
        module, "cuda", plan=plan, precision=precision, backends=backends, streams=system.streams
    )
    _replace(folder / system.module, built.export_library)
    facts: Row = {"backends": plan.backends()}
    if built.schedule is not None:
        schedule, memory = built.schedule, built.schedule.memory
        (folder / system.module).with_suffix(".schedule.json").write_text(schedule.dumps())
        facts |= {
            "streams": schedule.streams, "decided_by": schedule.decided_by, "note": schedule.note,
            "predicted_ms": predicted_us(plan, schedule, plan.objective) / 1e3,
            "arena_bytes": memory.peak_bytes,
            "single_arena_bytes": memory.single_stream_bytes,
        }  # fmt: skip
    return facts


def _replace(path: Path, make: Callable[[Path], Any]) -> None:
    """Make a file under another name first: other processes may look for it, or make it as well."""
    part = path.with_name(f".{os.getpid()}-{path.name}")
    make(part)
    part.replace(path)


def _facts(folder: Path, system: System) -> Row:
    path = (folder / system.module).with_suffix(".json")
    found: Row = json.loads(path.read_text()) if path.is_file() else {"failed": "not compiled"}
    return found


def _row(folder: Path, system: System) -> Row:
    return {"system": system.name, "mode": system.mode, **_facts(folder, system)}


def _is_built(folder: Path, system: System) -> bool:
    return (folder / system.module).is_file() and "failed" not in _facts(folder, system)


def time_systems(
    network: str, batch: int, systems: Sequence[System], folder: Path, options: Row
) -> list[Row]:
    """Load exported modules, compare their outputs and time them in turns: a row for each."""
    known, rows = networks.NETWORKS[network], {s: _row(folder, s) for s in systems}
    sessions: dict[System, Any] = {}
    data: list[list[Array]] = []
    first: list[list[Array]] = []
    want: list[list[Array] | None] = []
    for system in systems:
        row = rows[system]
        if "failed" in row:
            continue
        try:
            built = _loaded(folder / system.module, system.mode == "graph")
            row |= known.probe(batch, built)
            session = built.session()
            data = data or [_inputs(session, known.inputs(batch), seed) for seed in range(RUNS)]
            found = [session(*inputs) for inputs in data]
            first = first or found
            want = want or [known.exact(batch, i) if known.exact else None for i in data]
            row |= _compared(found, first, want)
            if not row.get("error", 0.0) < LIMIT:
                raise AssertionError(f"relative error {row['error']:.1e} against float64")
            sessions[system] = session
        except Exception as err:  # the others still have to be timed
            row["failed"] = f"{type(err).__name__}: {err}"[-1500:]
    ready()
    runs = {system: Run(s.run, s.synchronize) for system, s in sessions.items()}
    for system, timing in measure_in_turns(runs, options.get("seconds", 1.0)).items():
        rows[system] |= timing.to_json() | (timing.halves() if options.get("halves") else {})
    return list(rows.values())


def _loaded(path: Path, cuda_graph: bool) -> Any:
    import convoy
    from convoy.runtime.compiled import CompiledModule

    built = convoy.load(path)
    meta = dataclasses.replace(built.meta, cuda_graph=cuda_graph)
    return CompiledModule(built.module, meta)


def _inputs(session: Any, given: Mapping[str, Array], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [
        given[name] if name in given else rng.uniform(-1, 1, shape).astype(dtype)
        for name, shape, dtype in session.input_info
    ]


def _compared(found: list[list[Array]], first: list[list[Array]], want: list[Any]) -> Row:
    """The largest errors over all runs: ``differs`` from the first system's outputs, ``error``
    against float64, where that is known."""
    row: Row = {"differs": _largest(relative_error, found, first)}
    if want[0] is not None:
        row["error"] = _largest(relative_error, found, want)
        if want[0][0].ndim == 2:  # probabilities
            row["logit_error"] = _largest(lambda y, z: logit_error(y[0], z[0]), found, want)
    return row


def _largest(error: Callable[[Any, Any], float], found: list[Any], want: list[Any]) -> float:
    return float(np.max([error(y, z) for y, z in zip(found, want, strict=True)]))


def relative_error(found: Sequence[Array], want: Sequence[Array]) -> float:
    """Largest relative L2 error of the outputs; NaN where one has a NaN."""
    errors = []
    for y, z in zip(found, want, strict=True):
        exact = z.astype("float64")
        errors.append(np.linalg.norm(y.astype("float64") - exact) / (np.linalg.norm(exact) or 1.0))
    return float(np.max(errors))


def logit_error(found: Array, want: Array) -> float:
    """Relative L2 error of the inputs of the last softmax, up to its free constant: networks with
    random weights give nearly equal probabilities, whose own error says little."""
    logs = [np.log(p.astype("float64")) for p in (found, want)]
    mine, exact = (v - v.mean(axis=-1, keepdims=True) for v in logs)
    return float(np.linalg.norm(mine - exact) / np.linalg.norm(exact))
