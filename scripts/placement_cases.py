"""What bench_placement.py runs in processes of its own: compiling a plan, and timing modules."""

from __future__ import annotations

import functools
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from networks import INPUTS, network

MODES = ("graph", "stream", "sync")
SINGLES = {"cudnn": ("cudnn",), "cutlass": ("cutlass",)}
#: The same backends, each convolution for itself: no parallel branches as one, and of each the
#: longest fusion that pays by itself. Beside the others as a graph only.
GREEDY_SINGLES = {f"{name}-greedy": backends for name, backends in SINGLES.items()}
PLACED = "exact"


def build_plan(job: dict[str, Any]) -> dict[str, Any]:
    """Compile one plan (none: everything by TVM's own kernels) in several ways and export each.

    ``job``: network, batch, precision, plan (JSON or None), variants [cuda_graph, streams, file].
    Beside each file a JSON of the same name tells the calls of TVM's own kernels in it, or why it
    ``failed``. Returns the files that failed with the reason.
    """
    started = time.perf_counter()
    failed: dict[str, str] = {}
    about: dict[str, Any] = {}
    placed = None
    try:
        placed = _restored(job, about)
    except Exception as err:  # one plan that fails must not end the comparison
        failed = {file: _words(err) for *_, file in job["variants"]}
    for cuda_graph, streams, file in job["variants"] if placed is not None else ():
        from convoy.pipeline import compile_placement

        try:
            built = compile_placement(
                placed, "cuda", job["precision"], cuda_graph=cuda_graph, streams=streams
            )
            part = Path(file).with_suffix(".part.so")
            built.export_library(str(part))
            part.replace(file)
        except Exception as err:
            failed[file] = _words(err)
    about["build_s"] = round(time.perf_counter() - started, 1)
    for *_, file in job["variants"]:
        known = {"failed": failed[file]} if file in failed else about
        Path(file).with_suffix(".json").write_text(json.dumps(known))
    return {"failed": failed}


def build_plans(jobs: list[dict[str, Any]]) -> dict[str, str]:
    """:func:`build_plan` for plans of one network: files that failed with the reason."""
    return {file: why for job in jobs for file, why in build_plan(job)["failed"].items()}


def _restored(job: dict[str, Any], about: dict[str, Any]) -> Any:
    """The placement of a job; adds the calls of TVM's kernels to ``about``."""
    import convoy
    from convoy.ir.plan import Plan
    from convoy.lower.native import native_calls
    from convoy.partition.rewrite import rewrite
    from convoy.placement import api as placing
    from convoy.placement.placer import restore

    named = job["network"], job["batch"], job["precision"]
    if not job["plan"]:
        module = network(*named[:2])
        return convoy.place(module, precision=named[2], backends=("tvm",), measure=False)
    plan = Plan.from_json(job["plan"])
    placed = restore(_forms(*named), plan, placing.find_backends(placing.BACKENDS))
    chosen = {choice.region: choice.region for choice in placed.plan.choices}
    calls = native_calls(rewrite(placed.module, chosen), "cuda")
    about["native"] = [[call.name, call.operands] for call in calls]
    return placed


@functools.lru_cache(maxsize=1)
def _forms(name: str, batch: int, precision: str) -> list[Any]:
    """The normal forms of a network, made once for all plans of it."""
    from convoy.placement.placer import every_form

    return list(every_form(network(name, batch), None, precision))


def _words(err: Exception) -> str:
    return f"{type(err).__name__}: {err}"[-1500:]


class Runner:
    """Loads modules and times them in turns, so that a drifting clock meets all of them. Inputs
    that are not ``given`` by name are random."""

    def __init__(self, files: list[str], given: dict[str, np.ndarray], seed: int = 7) -> None:
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
                        given[name] if name in given else rng.uniform(-1, 1, shape).astype(dtype)
                        for name, shape, dtype in session.input_info
                    ]
                self.outputs[file] = np.asarray(session(*inputs)[0], np.float64)
                self.sessions[file] = session
            except Exception as err:  # the other modules still have to be timed
                self.failed[file] = f"{type(err).__name__}: {err}"[-800:]

    def times(self, rounds: int, repeat: int, budget_ms: float) -> dict[str, list[list[float]]]:
        """Milliseconds of one run by file: ``rounds`` lists of ``repeat`` samples. In every round
        each module has its turn; every other round goes backwards."""
        number = {}
        for file, session in self.sessions.items():
            rough = statistics.median(session.time(repeat=2, number=2))
            number[file] = max(1, min(100, int(budget_ms / rough)))
        found: dict[str, list[list[float]]] = {file: [] for file in self.sessions}
        for i in range(rounds):
            for file in list(self.sessions)[:: -1 if i % 2 else 1]:
                found[file].append(self.sessions[file].time(repeat, number[file]))
        return found


def run_modules(group: dict[str, Any]) -> dict[str, Any]:
    """Time exported modules, in turns, and TVM's kernels in them where that is asked for.

    ``group``: network, batch, runs (file by label), calls (of TVM's kernels, by label), native
    (whether to time these), rounds, repeat, budget_ms. A label whose module fails has the reason
    instead.
    """
    files = list(dict.fromkeys(group["runs"].values()))
    given = INPUTS[group["network"]](group["batch"]) if group["network"] in INPUTS else {}
    runner = Runner(files, given)
    samples = runner.times(group["rounds"], group["repeat"], group["budget_ms"])
    first = next(iter(runner.outputs.values()), None)
    by_file: dict[str, Any] = {file: {"failed": why} for file, why in runner.failed.items()}
    for file, rounds in samples.items():
        y = runner.outputs[file]
        by_file[file] = {
            **summary([ms for each in rounds for ms in each]),
            "rounds": [[round(ms, 6) for ms in each] for each in rounds],
            "differs": float(np.linalg.norm(y - first) / np.linalg.norm(first)),
            "finite": bool(np.isfinite(y).all()),
        }
    native: dict[str, Any] = {}
    for label, calls in group["calls"].items() if group["native"] else ():
        file = group["runs"][label]
        if file in runner.sessions:
            native.update(native_times(file, calls, native))
    runs = {label: by_file[file] for label, file in group["runs"].items()}
    return {"runs": runs, "native": native, "calls": group["calls"]}


def summary(samples: list[float]) -> dict[str, Any]:
    """Median and half the distance from the 10th to the 90th percentile, in milliseconds."""
    low, middle, high = np.percentile(samples, [10, 50, 90])
    return {"ms": float(middle), "spread_ms": float(high - low) / 2, "samples": len(samples)}


def native_key(name: str, operands: Any) -> str:
    """Equal for kernels that do the same: TVM numbers equal names apart."""
    return json.dumps([name.rstrip("0123456789"), operands])


def native_times(
    file: str, calls: list[Any], known: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """kernel_us, enqueue_us and e2e_us of those of TVM's kernels in a module that are not known
    yet, by the protocol of candidates."""
    import convoy
    from convoy.runtime.compiled import _all_imports
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
    """``placement_cases.py GROUPS.json CORES``: time groups of modules (see run_modules) on these
    cores of the processor, and write what was found to the file that each group names."""
    os.sched_setaffinity(0, json.loads(sys.argv[2]))
    for group in json.loads(Path(sys.argv[1]).read_text()):
        started = time.perf_counter()
        found = run_modules(group)
        part = Path(group["out"]).with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(group["out"])
        print(f"  {group['name']}: {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
