"""Placements of whole networks, measured end to end in all three run modes in one run.

    python scripts/bench_placement.py --networks googlenet inception_v3 --batches 1 8 \\
        --records records.jsonl --out placement.json

For every network and batch size: cuDNN alone, CUTLASS alone (what they decline goes to TVM), TVM's
own kernels, the greedy choice, the exact cover and what the second level evolves, each placed under
the objective of the mode that it is run in, and the exact cover of another objective, which shows
what the wrong metric loses. As a CUDA graph plans are also run on several streams (``x4``); the
second level is the fastest of all that were measured so.

    graph   the network replayed as one CUDA graph, runs back to back
    stream  asynchronous launches, runs back to back
    sync    a synchronisation after every launch (CUDA_LAUNCH_BLOCKING=1)

Candidates without a record are measured, of each backend at most ``--most`` for a workload and only
as long as ``--measure-seconds`` last; a later run with the same records goes on. Only CUTLASS
kernels that are compiled already take part, unless ``--compile`` is given. Prints tables, writes
JSON.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from placement_cases import MODES, PLACED, SINGLES, build_plan, native_key, network
from placement_report import report, save

NETWORKS = ("resnet50", "inception_v3", "googlenet", "densenet121", "resnext50")
STREAMS = 4
EVOLVED = 2  # finalists of the second level that are compiled
TVM_MOST_BATCH = 8  # larger ones take TVM's kernels seconds


def is_compiled() -> Callable[[Any], bool]:
    """Whether a candidate of any backend can be built without compiling a CUTLASS kernel."""
    from convoy.backends.cutlass import launch_of
    from convoy.codegen.cache import KernelCache
    from convoy.codegen.compile import cache_key
    from convoy.codegen.toolkit import find_toolkit

    cache, toolkit, known = KernelCache(), find_toolkit(), {}

    def compiled(candidate: Any) -> bool:
        if candidate.backend != "cutlass":
            return True
        config = launch_of(candidate).config
        if config not in known:
            known[config] = cache.get(cache_key(config, toolkit)) is not None
        return bool(known[config])

    return compiled


def compiled_backend() -> Any:
    """The CUTLASS backend with those candidates whose kernel is in the cache."""
    from convoy.backends.base import Candidate, Decline, Device
    from convoy.backends.cutlass import CutlassBackend
    from convoy.workload import Workload

    compiled = is_compiled()

    class Compiled(CutlassBackend):
        def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
            answer = super().propose(workload, device)
            if isinstance(answer, Decline):
                return answer
            kept = [candidate for candidate in answer if compiled(candidate)]
            return kept or Decline(self.name, "none of its kernels is compiled", "--compile")

    return Compiled(limit=200)


def compiled_costs(costs: Any) -> Any:
    """Recorded costs of candidates that need no compiling."""
    compiled, known = is_compiled(), costs.candidates
    costs.candidates = lambda workload: [c for c in known(workload) if compiled(c)]
    return costs


def placer(args: argparse.Namespace, name: str, batch: int, measure: bool) -> Any:
    """The placer of one network; its figures are measured, or from the records alone."""
    from convoy import placer as placers
    from convoy import placing
    from convoy.backends.base import Device
    from convoy.placement.sources import cost_model

    backends = placing.find_backends(["cudnn", "cutlass", "hopper"])
    if not args.compile:
        backends[1] = compiled_backend()
    forms = placers.normal_forms(network(name, batch), None, args.precision)
    deadline = time.monotonic() + args.measure_seconds

    def told(label: str, done: int, total: int) -> None:
        if done % 100 == 0:
            print(f"  {done}/{total} {label}", flush=True)

    device = Device(**args.device)
    costs, environment = cost_model(
        backends,
        device,
        args.records,
        measure,
        args.most,
        told,
        lambda: time.monotonic() < deadline,
    )
    if not measure and not args.compile:
        costs = compiled_costs(costs)
    return placers.Placer(forms, backends, device, costs, environment)


def plans_of(job: tuple[argparse.Namespace, str, int]) -> dict[str, Any]:
    """Plans by ``variant/objective``, from records; variants that cannot be placed have a reason
    instead."""
    import warnings

    warnings.simplefilter("ignore")
    args, name, batch = job
    network_placer = placer(args, name, batch, measure=False)
    found: dict[str, Any] = {}
    for objective in MODES:
        for variant in [*SINGLES, "greedy", PLACED]:
            search = variant if variant in ("greedy", PLACED) else PLACED
            started = time.perf_counter()
            try:
                placed = network_placer.place(objective, search, SINGLES.get(variant, ()))
            except Exception as err:  # a backend that declines all of it
                found[f"{variant}/{objective}"] = {"failed": f"{type(err).__name__}: {err}"[-800:]}
                continue
            found[f"{variant}/{objective}"] = described(placed.plan, started)
            found[f"{variant}/{objective}"]["left_to_tvm"] = len(placed.native)
    started = time.perf_counter()
    try:
        for i, (plan, us) in enumerate(network_placer.finalists("graph", EVOLVED)):
            found[f"evolved{i + 1}/graph"] = {**described(plan, started), "simulated_us": us}
    except Exception as err:
        found["evolved1/graph"] = {"failed": f"{type(err).__name__}: {err}"[-800:]}
    if batch <= TVM_MOST_BATCH and not args.skip_tvm:
        found["tvm/any"] = {"plan": None, "backends": {}, "cost_us": {}}
    return found


def described(plan: Any, started: float) -> dict[str, Any]:
    return {
        "plan": plan.to_json(),
        "backends": plan.backends(),
        "search_s": round(time.perf_counter() - started, 2),
        "cost_us": {o: plan.total_us(o) for o in MODES},
    }


def needed(plans: dict[str, Any], mode: str) -> list[tuple[str, int]]:
    """(plan, streams) of what is run in a mode: the plans made for it, and the exact cover of
    another objective, which shows what the wrong metric loses."""
    wanted = [(f"{variant}/{mode}", 1) for variant in (*SINGLES, PLACED)]
    if mode == "graph":
        wanted += [("greedy/graph", 1), (f"{PLACED}/sync", 1)]
        streamed = [*SINGLES, PLACED, *(f"evolved{i + 1}" for i in range(EVOLVED))]
        wanted += [(f"{variant}/graph", STREAMS) for variant in streamed]
    else:
        wanted.append((f"{PLACED}/graph", 1))
    wanted.append(("tvm/any", 1))
    return [(n, s) for n, s in wanted if n in plans and "failed" not in plans[n]]


def signature(plan: dict[str, Any] | None) -> str:
    """Equal for plans that compile to the same module."""
    if plan is None:
        return "tvm"
    choices = [
        (c["region"], c["chosen"]["candidate"]["backend"], c["chosen"]["candidate"]["kernel"])
        for c in plan["choices"]
    ]
    return json.dumps([plan["choices"] and plan["choices"][0]["workload"], sorted(choices)])


def build_all(
    args: argparse.Namespace, cases: dict[str, dict[str, Any]], folder: Path, pool: Any
) -> dict[str, dict[str, Any]]:
    """Compile every distinct plan of every case, in parallel; what is known of each file."""
    jobs: dict[tuple[str, str], dict[str, Any]] = {}
    known: dict[tuple[str, str, bool, int], str] = {}
    for case_name, case in cases.items():
        case["files"] = {mode: {} for mode in MODES}
        for mode in MODES:
            for name, streams in needed(case["plans"], mode):
                plan, graph = case["plans"][name]["plan"], mode == "graph"
                own = (case_name, signature(plan))
                job = jobs.setdefault(
                    own,
                    {
                        "network": case["network"],
                        "batch": case["batch"],
                        "precision": args.precision,
                        "plan": plan,
                        "variants": [],
                    },
                )
                if (*own, graph, streams) not in known:
                    file = str(folder / f"m{len(known)}.so")
                    known[(*own, graph, streams)] = file
                    job["variants"].append([graph, streams, file])
                label = name if streams == 1 else f"{name} x{streams}"
                case["files"][mode][label] = known[(*own, graph, streams)]
    prepare(cases)
    print(f"compiling {len(known)} modules of {len(jobs)} plans", flush=True)
    built = {}
    longest_first = sorted(jobs.values(), key=lambda job: -len(job["variants"]))
    for done in pool.map(build_plan, longest_first):
        for file in done["files"]:
            built[file] = {"native": done["native"]} if "native" in done else {}
            if file in done["failed"]:
                built[file]["failed"] = done["failed"][file]
                print("not built:", done["failed"][file][-300:], flush=True)
    return built


def prepare(cases: dict[str, dict[str, Any]]) -> None:
    """Compile the chosen kernels that no measurement has compiled, many at once."""
    from convoy.backends import registry
    from convoy.placement.plan import Plan
    from convoy.runtime import current_device

    jobs: dict[str, list[Any]] = {}
    for case in cases.values():
        for entry in case["plans"].values():
            for choice in Plan.from_json(entry["plan"]).choices if entry.get("plan") else ():
                candidate = choice.chosen.candidate
                jobs.setdefault(candidate.backend, []).append((choice.workload, candidate))
    for name, chosen in jobs.items():
        registry.get(name).prepare(chosen, current_device())


def run_all(
    args: argparse.Namespace,
    cases: dict[str, dict[str, Any]],
    built: dict[str, dict[str, Any]],
    folder: Path,
) -> None:
    """Time every case in every mode; modes that synchronise have a process of their own."""
    for modes, share in ((("graph", "stream"), 0.7), (("sync",), 1.0)):
        timeout = max(10.0, share * (args.ends - time.monotonic()))
        groups, places = [], []
        for key, case in cases.items():
            for mode in modes:
                files = {n: f for n, f in case["files"][mode].items() if "failed" not in built[f]}
                native = {f: built[f]["native"] for f in files.values() if "native" in built[f]}
                groups.append(
                    {
                        "name": f"{key} {mode}",
                        "files": list(dict.fromkeys(files.values())),
                        "rounds": 3,
                        "repeat": 8,
                        "budget_ms": args.sample_ms,
                        "native": {} if mode == "sync" else native,
                    }
                )
                places.append((case, mode, files))
        for (case, mode, files), result in zip(
            places, run_process(groups, "sync" in modes, folder, timeout), strict=False
        ):
            runs = {n: result["files"].get(f, {}) for n, f in files.items()}
            case.setdefault("runs", {})[mode] = runs
            case.setdefault("native", {}).update(result["native"])
            for file, why in result["failed"].items():
                print(f"{mode} {file}: {why}", flush=True)
    for case in cases.values():
        predict(case, built)


def run_process(
    groups: list[dict[str, Any]], blocking: bool, folder: Path, timeout: float
) -> list[dict[str, Any]]:
    """Results of the groups that a fresh process could time before ``timeout`` seconds."""
    (folder / "groups.json").write_text(json.dumps(groups))
    results = folder / "results.json"
    results.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).with_name("placement_cases.py"))]
    command += [str(folder / "groups.json"), str(results)]
    environment = {**os.environ, **({"CUDA_LAUNCH_BLOCKING": "1"} if blocking else {})}
    try:
        done = subprocess.run(command, env=environment, timeout=timeout)
        if done.returncode:
            print(f"timing ended with status {done.returncode}", flush=True)
    except subprocess.TimeoutExpired:
        print(f"timing did not end within {timeout} s", flush=True)
    found: list[dict[str, Any]] = json.loads(results.read_text()) if results.exists() else []
    return found


def predict(case: dict[str, Any], built: dict[str, dict[str, Any]]) -> None:
    """Adds ``predicted_us`` by run and mode: figures of the candidates, plus those of TVM's
    kernels, which were measured in the same run. Several streams are not predicted."""
    from convoy.measure.measurement import Measurement
    from convoy.placement import objective as objectives

    case["predicted_us"] = {mode: {} for mode in MODES}
    for mode in MODES:
        for name, file in case["files"][mode].items():
            calls = built[file].get("native")
            if calls is None or " x" in name:
                continue
            measured = case.get("native", {})
            native = [measured.get(native_key(*call), {}) for call in calls]
            chosen = [
                choice["chosen"]["measurement"] for choice in case["plans"][name]["plan"]["choices"]
            ]
            if any("kernel_us" not in figure for figure in (*native, *chosen)):
                continue
            figures = [Measurement.from_json(figure) for figure in (*native, *chosen)]
            case["predicted_us"][mode][name] = objectives.total(figures, mode)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--precision", default="float16")
    parser.add_argument("--records", default="", help="file of measurements, read and added to")
    parser.add_argument("--most", type=int, default=None, help="candidates a backend and workload")
    parser.add_argument("--measure-seconds", type=float, default=math.inf, help="for each case")
    parser.add_argument("--no-measure", action="store_true", help="place from the records alone")
    parser.add_argument("--compile", action="store_true", help="compile CUTLASS kernels")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--skip-tvm", action="store_true", help="not all by TVM's own kernels")
    parser.add_argument("--sample-ms", type=float, default=10.0, help="of each sample")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of the whole run")
    parser.add_argument("--out", default="placement.json")
    args = parser.parse_args()
    args.records = args.records or None
    args.ends = time.monotonic() + args.seconds
    from convoy.runtime import current_device

    args.device = dataclasses.asdict(current_device())
    names = [(n, b) for b in args.batches for n in args.networks]
    for name, batch in names if not args.no_measure else ():
        started = time.perf_counter()
        placer(args, name, batch, measure=True).place("graph", "greedy")
        print(f"{name} N={batch}: measured in {time.perf_counter() - started:.1f} s", flush=True)
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as text,
        concurrent.futures.ProcessPoolExecutor(args.jobs, context) as pool,
    ):
        folder = Path(text)
        started = time.perf_counter()
        cases = {
            f"{name} N={batch}": {"network": name, "batch": batch, "plans": plans}
            for (name, batch), plans in zip(
                names, pool.map(plans_of, [(args, *pair) for pair in names]), strict=True
            )
        }
        print(f"placed in {time.perf_counter() - started:.1f} s", flush=True)
        for key, case in cases.items():
            for label, plan in case["plans"].items():
                costs = {o: round(us, 1) for o, us in plan.get("cost_us", {}).items()}
                print(key, label, plan.get("backends"), costs, plan.get("failed", ""), flush=True)
        save(args.out, cases)
        started = time.perf_counter()
        built = build_all(args, cases, folder, pool)
        print(f"compiled in {time.perf_counter() - started:.1f} s", flush=True)
        started = time.perf_counter()
        run_all(args, cases, built, folder)
        print(f"run in {time.perf_counter() - started:.1f} s", flush=True)
        save(args.out, cases)
    report(cases)


if __name__ == "__main__":
    main()
