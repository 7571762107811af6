"""What bench_placement.py runs in processes of its own: compiling a plan, and timing modules."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from networks import network

MODES = ("graph", "stream", "sync")
SINGLES = {"cudnn": ("cudnn",), "cutlass": ("cutlass",)}
PLACED = "exact"


def build_plan(job: dict[str, Any]) -> dict[str, Any]:
    """Compile one plan (none: everything by TVM's own kernels) in several ways and export each.

    ``job``: network, batch, precision, plan (JSON or None), variants [cuda_graph, streams, file].
    Adds seconds, the files that failed with the reason, and the calls of TVM's own kernels.
    """
    import convoy
    from convoy import graph
    from convoy.build import compile_placement
    from convoy.graph.native import native_calls
    from convoy.placement.plan import Plan

    started = time.perf_counter()
    done: dict[str, Any] = {"files": [file for *_, file in job["variants"]], "failed": {}}
    try:
        module = network(job["network"], job["batch"])
        if job["plan"]:
            options: dict[str, Any] = {"plan": Plan.from_json(job["plan"])}
        else:
            options = {"backends": ("tvm",), "measure": False}
        placed = convoy.place(module, precision=job["precision"], **options)
        if job["plan"]:
            chosen = {choice.region: choice.region for choice in placed.plan.choices}
            calls = native_calls(graph.rewrite(placed.module, chosen), "cuda")
            done["native"] = [[call.name, call.operands] for call in calls]
    except Exception as err:  # one plan that fails must not end the comparison
        done["failed"] = dict.fromkeys(done["files"], f"{type(err).__name__}: {err}"[-1500:])
        return done
    for cuda_graph, streams, file in job["variants"]:
        try:
            built = compile_placement(
                placed, "cuda", job["precision"], cuda_graph=cuda_graph, streams=streams
            )
            built.export_library(file)
        except Exception as err:
            done["failed"][file] = f"{type(err).__name__}: {err}"[-1500:]
    done["build_s"] = round(time.perf_counter() - started, 1)
    return done


class Runner:
    """Loads modules and times them in turns, so that a drifting clock meets all of them."""

    def __init__(self, files: list[str], seed: int = 7) -> None:
        self.sessions: dict[str, Any] = {}
        self.failed: dict[str, str] = {}
        self.outputs: dict[str, np.ndarray] = {}
        import convoy

        rng = np.random.default_rng(seed)
        inputs: list[np.ndarray] = []
        for file in files:
            try:
                session = convoy.load(file).session()
                if not inputs:
                    inputs = [
                        rng.uniform(-1, 1, shape).astype(dtype)
                        for _, shape, dtype in session.input_info
                    ]
                self.outputs[file] = np.asarray(session(*inputs)[0], np.float64)
                self.sessions[file] = session
            except Exception as err:  # the other modules still have to be timed
                self.failed[file] = f"{type(err).__name__}: {err}"[-800:]

    def times(self, rounds: int, repeat: int, budget_ms: float) -> dict[str, list[float]]:
        """Milliseconds of one run by file, ``rounds * repeat`` samples of each."""
        number = {}
        for file, session in self.sessions.items():
            rough = statistics.median(session.time(repeat=2, number=2))
            number[file] = max(1, min(100, int(budget_ms / rough)))
        found: dict[str, list[float]] = {file: [] for file in self.sessions}
        for _ in range(rounds):
            for file, session in self.sessions.items():
                found[file] += session.time(repeat, number[file])
        return found


def run_modules(group: dict[str, Any]) -> dict[str, Any]:
    """Time exported modules, in turns, and TVM's kernels in them where that is asked for.

    ``group``: files, rounds, repeat, budget_ms, native (calls by file).
    """
    runner = Runner(group["files"])
    samples = runner.times(group["rounds"], group["repeat"], group["budget_ms"])
    result: dict[str, Any] = {"failed": runner.failed, "files": {}}
    first = next(iter(runner.outputs.values()), None)
    for file, values in samples.items():
        low, high = np.percentile(values, [10, 90])
        y = runner.outputs[file]
        result["files"][file] = {
            "ms": statistics.median(values),
            "spread_ms": float(high - low) / 2,
            "samples": len(values),
            "differs": float(np.linalg.norm(y - first) / np.linalg.norm(first)),
            "finite": bool(np.isfinite(y).all()),
        }
    result["native"] = {}
    for file, calls in group.get("native", {}).items():
        if file in runner.sessions:
            result["native"].update(native_times(file, calls, result["native"]))
    return result


def native_key(name: str, operands: Any) -> str:
    """Equal for kernels that do the same: TVM numbers equal names apart."""
    return json.dumps([name.rstrip("0123456789"), operands])


def native_times(
    file: str, calls: list[Any], known: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """kernel_us, enqueue_us and e2e_us of those of TVM's kernels in a module that are not known
    yet, by the protocol of candidates."""
    import convoy
    from convoy.compiled import _all_imports
    from convoy.runtime.library import function

    parts = _all_imports(convoy.load(file).module)
    found: dict[str, dict[str, Any]] = {}
    for name, operands in calls:
        key = native_key(name, operands)
        if key in known or key in found:
            continue
        try:
            run = next(m[name] for m in parts if m.implements_function(name))
            tensors = [_tensor(tuple(shape), dtype) for shape, dtype in operands]
            figures = {
                "kernel_us": function("measure.kernel_us")(run, tensors, 0, 20, 15, 5e3),
                "enqueue_us": function("measure.enqueue_us")(run, tensors, 0, 20, 10, 5e3),
                "e2e_us": function("measure.e2e_us")(run, tensors, 0, 15, 5e3),
            }
            found[key] = {k: float(np.median(list(v))) for k, v in figures.items()}
        except Exception as err:  # shown in the result instead of a figure
            found[key] = {"failed": f"{type(err).__name__}: {err}"[-300:]}
    return found


def _tensor(shape: tuple[int, ...], dtype: str) -> Any:
    import tvm

    tensor = tvm.runtime.empty(shape, dtype, tvm.cuda(0))
    values = np.random.default_rng(1).uniform(-1, 1, math.prod(shape)).reshape(shape)
    tensor.copyfrom(values.astype(dtype))
    return tensor


def main() -> None:
    """``placement_cases.py GROUPS.json RESULTS.json``: time groups of modules (see run_modules);
    what is done is written after each group."""
    groups = json.loads(Path(sys.argv[1]).read_text())
    results: list[dict[str, Any]] = []
    for group in groups:
        started = time.perf_counter()
        results.append(run_modules(group))
        print(f"  {group['name']}: {time.perf_counter() - started:.1f} s", flush=True)
        Path(sys.argv[2]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
