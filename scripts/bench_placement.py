"""Placements of whole networks, measured end to end in all three run modes in one run.

    python scripts/bench_placement.py --networks googlenet inception_v3 --batches 1 8 \\
        --records records.jsonl --work work --out placement.json

For every network and batch size: cuDNN alone, CUTLASS alone (what they decline goes to TVM), TVM's
own kernels, the greedy choice, the exact cover and what the second level evolves, each placed under
the objective of the mode that it is run in, and the exact cover of another objective, which shows
what the wrong metric loses. As a CUDA graph plans are also run on several streams (``x4``), and
each library alone also convolution by convolution (``-greedy``). Samples are taken in rounds, in
turns; the second level chooses by the even rounds and is reported, like all that it is compared
with, by the odd ones.

    graph   the network replayed as one CUDA graph, runs back to back
    stream  asynchronous launches, runs back to back
    sync    a synchronisation after every launch (CUDA_LAUNCH_BLOCKING=1)

``--stages``: ``kernels`` compiles CUTLASS kernels, those first that serve most; ``rank`` predicts
what is worth measuring where a workload has no record of a backend (``--most`` of each by each
figure), ``measure`` measures that, as long as ``--measure-seconds`` last; ``host`` compares host
times of the records with this host; ``plan`` places from records; ``build`` compiles the plans;
``run`` times them; ``context`` takes the time of every kernel inside the network. Only CUTLASS
kernels that are compiled already take part, unless ``--compile`` is given. What each stage makes is
kept in the folder ``--work`` and not made again; all but ``measure``, ``host``, ``run`` and
``context`` need no GPU. The tables and the JSON are of all cases that the folder holds.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import gzip
import hashlib
import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from networks import NETWORKS, TRAINING
from placement_cases import MODES, build_plans
from placement_gpus import Share, on_each
from placement_plans import BACKENDS, backends_of, needed, plans_of, signature, workloads_of
from placement_report import report, save

NAMES = sorted((*NETWORKS, *TRAINING))
DEFAULT = ("resnet50", "inception_v3", "googlenet", "densenet121", "resnext50")
STAGES = ("kernels", "rank", "measure", "host", "plan", "build", "run", "context")
ROUNDS, REPEAT = 6, 4
CHUNK = 3  # plans of one network that a process compiles
#: Modes that are timed in one process: those that synchronise need another environment.
PROCESSES = (("graph", "stream"), ("sync",))


class Work:
    """The folder that holds what the stages made, by case (``network N=batch``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("plans", "modules", "runs"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def hosts_file(self) -> Path:
        return self.folder / "hosts.json"

    def hosts(self) -> list[Any]:
        """What the stage ``host`` found."""
        path = self.hosts_file
        return list(json.loads(path.read_text())) if path.is_file() else []

    def plans_file(self, key: str) -> Path:
        return self.folder / "plans" / f"{_file_name(key)}.json.gz"

    def plans(self, key: str) -> dict[str, Any] | None:
        """Plans by ``variant/objective``; None where there are none yet."""
        path = self.plans_file(key)
        if not path.is_file():
            return None
        found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        return found

    def keep_plans(self, key: str, plans: dict[str, Any]) -> None:
        _replace(self.plans_file(key), gzip.compress(json.dumps(plans).encode()))

    def module(self, key: str, plan: Any, graph: bool, streams: int) -> Path:
        """Where the module of a plan lies, built or not."""
        text = json.dumps([key, signature(plan), graph, streams])
        return self.folder / "modules" / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.so"

    def built(self, module: Path) -> dict[str, Any] | None:
        """What is known of a module: ``failed`` with a reason, or the calls of TVM's kernels."""
        path = module.with_suffix(".json")
        if not path.is_file():
            return None
        known: dict[str, Any] = json.loads(path.read_text())
        return known if "failed" in known or module.is_file() else None

    def runs_file(self, key: str, mode: str) -> Path:
        return self.folder / "runs" / f"{_file_name(key)}.{mode}.json"

    def context_file(self, key: str) -> Path:
        return self.folder / "runs" / f"{_file_name(key)}.context.json"

    def cases(self) -> list[str]:
        """Cases that have plans, in order of network and batch."""
        names = [path.name.split(".")[0] for path in (self.folder / "plans").glob("*.json.gz")]
        found = [name.rsplit("_n", 1) for name in names]
        return [
            f"{name} N={batch}" for name, batch in sorted(found, key=lambda f: (f[0], int(f[1])))
        ]

    def case(self, key: str) -> dict[str, Any]:
        """A case with its plans, runs by mode, and the files behind them."""
        name, batch = key.split(" N=")
        case: dict[str, Any] = {
            "network": name,
            "batch": int(batch),
            "plans": self.plans(key) or {},
        }
        case |= {"runs": {}, "native": {}, "calls": {}}
        for mode in MODES:
            path = self.runs_file(key, mode)
            if path.is_file():
                found = json.loads(path.read_text())
                case["runs"][mode] = found["runs"]
                case["native"].update(found["native"])
                case["calls"].update(found["calls"])
        if self.context_file(key).is_file():
            case["context"] = json.loads(self.context_file(key).read_text())
        return case


def _file_name(key: str) -> str:
    return key.replace(" N=", "_n")


def _replace(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)


def labelled(
    args: argparse.Namespace, plans: dict[str, Any], mode: str
) -> list[tuple[str, str, int]]:
    """(label, plan, streams) of what is run in a mode."""
    found = [
        (name, streams)
        for name, streams in needed(plans, mode)
        if (not args.plans or name in args.plans) and (streams == 1 or not args.one_stream)
    ]
    return [
        (name if streams == 1 else f"{name} x{streams}", name, streams) for name, streams in found
    ]


def plan_all(args: argparse.Namespace, work: Work, cases: list[tuple[str, int]], pool: Any) -> None:
    todo = [(n, b) for n, b in cases if args.again or work.plans(f"{n} N={b}") is None]
    args.hosts = work.hosts()
    jobs = {pool.submit(plans_of, (args, n, b)): f"{n} N={b}" for n, b in todo}
    for future in concurrent.futures.as_completed(jobs):
        key = jobs[future]
        try:
            plans = future.result()
        except Exception as err:  # the other networks still have to be placed
            print(f"{key}: not placed: {type(err).__name__}: {err}"[:600], flush=True)
            continue
        work.keep_plans(key, {**(work.plans(key) or {}), **plans})
        for label, plan in plans.items():
            costs = {o: round(us, 1) for o, us in plan.get("cost_us", {}).items()}
            print(key, label, plan.get("backends"), costs, plan.get("failed", ""), flush=True)


def build_all(
    args: argparse.Namespace, work: Work, cases: list[tuple[str, int]], pool: Any
) -> None:
    """Compile every distinct plan of the cases that is not compiled yet, in order of the cases."""
    jobs: dict[tuple[str, str], dict[str, Any]] = {}
    for name, batch in cases:
        key = f"{name} N={batch}"
        plans = work.plans(key) or {}
        for mode in args.modes:
            for _, label, streams in labelled(args, plans, mode):
                plan, graph = plans[label]["plan"], mode == "graph"
                module = work.module(key, plan, graph, streams)
                known = work.built(module)
                if known is not None and ("failed" not in known or not args.again):
                    continue
                job = jobs.setdefault(
                    (key, signature(plan)),
                    {"network": name, "batch": batch, "precision": args.precision, "plan": plan}
                    | {"variants": []},
                )
                variant = [graph, streams, str(module)]
                if variant not in job["variants"]:
                    job["variants"].append(variant)
    prepare(args, list(jobs.values()))
    count = sum(len(job["variants"]) for job in jobs.values())
    print(f"compiling {count} modules of {len(jobs)} plans", flush=True)
    futures = [pool.submit(build_plans, chunk) for chunk in chunks(list(jobs.values()), args.jobs)]
    try:
        for future in concurrent.futures.as_completed(futures, max(5.0, left(args))):
            for file, why in future.result().items():
                print("not built:", Path(file).name, why[-300:], flush=True)
    except TimeoutError:
        print("not all modules were compiled in time", flush=True)
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list((pool._processes or {}).values()):
            process.terminate()


def chunks(jobs: list[dict[str, Any]], processes: int) -> list[list[dict[str, Any]]]:
    """Jobs by network and batch size, so many of them together, unless there is a process for each:
    a network takes as long to bring to its normal forms as a plan of it to compile."""
    if len(jobs) <= processes:
        return [[job] for job in jobs]
    cases: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for job in jobs:
        cases.setdefault((job["network"], job["batch"]), []).append(job)
    return [own[i : i + CHUNK] for own in cases.values() for i in range(0, len(own), CHUNK)]


def prepare(args: argparse.Namespace, jobs: list[dict[str, Any]]) -> None:
    """Compile the chosen kernels that are not compiled yet, many at once."""
    from convoy.backends import registry
    from convoy.ir.device import Device
    from convoy.ir.plan import Plan

    chosen: dict[str, list[Any]] = {}
    for job in jobs:
        for choice in Plan.from_json(job["plan"]).choices if job["plan"] else ():
            candidate = choice.chosen.candidate
            chosen.setdefault(candidate.backend, []).append((choice.workload, candidate))
    for name, pairs in chosen.items():
        registry.get(name).prepare(pairs, Device(**args.device))


def run_all(args: argparse.Namespace, work: Work, cases: list[tuple[str, int]]) -> None:
    """Time every case in every mode that has not been timed, on all visible GPUs at once."""
    for together in PROCESSES:
        modes = [mode for mode in together if mode in args.modes]
        groups = []
        for name, batch in cases:
            key = f"{name} N={batch}"
            for mode in modes:
                if args.again or not work.runs_file(key, mode).is_file():
                    groups += group_of(args, work, key, mode)
        blocking = "sync" in modes
        on_each(functools.partial(run_groups, args, blocking), groups)


def group_of(args: argparse.Namespace, work: Work, key: str, mode: str) -> list[dict[str, Any]]:
    """The modules of one case that are timed together in one mode; none where nothing is built."""
    plans = work.plans(key) or {}
    runs: dict[str, str] = {}
    calls: dict[str, Any] = {}
    for label, name, streams in labelled(args, plans, mode):
        module = work.module(key, plans[name]["plan"], mode == "graph", streams)
        known = work.built(module)
        if known is None or "failed" in known:
            why = (known or {}).get("failed", "not compiled")
            print(f"{key} {mode} {label}: {why}"[:300], flush=True)
            continue
        runs[label] = str(module)
        if "native" in known:
            calls[label] = known["native"]
    if not runs:
        return []
    network, batch = key.split(" N=")
    return [
        {
            "name": f"{key} {mode}", "network": network, "batch": int(batch), "runs": runs,
            "out": str(work.runs_file(key, mode)), "calls": calls, "native": mode == "graph",
            "rounds": ROUNDS, "repeat": REPEAT, "budget_ms": args.sample_ms,
        }
    ]  # fmt: skip


def run_groups(
    args: argparse.Namespace,
    blocking: bool,
    share: Share,
    groups: list[dict[str, Any]],
    script: str = "placement_cases.py",
) -> None:
    """Time groups in a fresh process, and in another one what a crash has left over; the group
    that crashed is not tried again."""
    environment = share.environment(**({"CUDA_LAUNCH_BLOCKING": "1"} if blocking else {}))
    listed = Path(args.work) / f"groups{share.gpu}.json"
    while groups and left(args) > 5:
        listed.write_text(json.dumps(groups))
        path = str(Path(__file__).with_name(script))
        command = [sys.executable, path, str(listed), json.dumps(share.cores)]
        try:
            done = subprocess.run(command, env=environment, timeout=left(args))
        except subprocess.TimeoutExpired:
            print("timing was cut by the time limit", flush=True)
            return
        groups = [group for group in groups if not Path(group["out"]).is_file()]
        if not done.returncode:
            return
        if groups:
            print(f"{groups[0]['name']}: ended with status {done.returncode}", flush=True)
            groups = groups[1:]


def context_all(args: argparse.Namespace, work: Work, cases: list[tuple[str, int]]) -> None:
    """What each kernel of the plans for one stream takes inside the network."""
    groups = []
    for name, batch in cases:
        key = f"{name} N={batch}"
        out = work.context_file(key)
        for group in group_of(args, work, key, "graph") if args.again or not out.is_file() else ():
            runs = {label: file for label, file in group["runs"].items() if label in group["calls"]}
            single = {label: file for label, file in runs.items() if " x" not in label}
            groups.append({"name": key, "runs": single, "out": str(out)})
    on_each(functools.partial(run_groups, args, False, script="placement_context.py"), groups)


def left(args: argparse.Namespace) -> float:
    """Seconds until the end of the whole run."""
    return float(max(1.0, args.ends - time.monotonic()))


def compile_kernels(
    args: argparse.Namespace, work: Work, cases: list[tuple[str, int]], pool: Any
) -> None:
    import placement_kernels as kernels
    from convoy import paths
    from convoy.cost.predicted import PredictedCost
    from convoy.ir.device import Device
    from convoy.records.store import RecordStore

    started = time.monotonic()
    listed = work.folder / "kernels.json"
    configs = kernels.kept(listed)
    if not configs or args.again:
        found = pool.map(workloads_of, [(n, b, args.precision) for n, b in cases])
        workloads = {workload: None for each in found for workload in each}
        own = Path(args.records) if args.records else None
        store, device = RecordStore([paths.records_dir()], write_to=own), Device(**args.device)
        known = list(kernels.recorded(store, workloads))
        served = {workload for workload, _, _ in known}
        others = [workload for workload in workloads if workload not in served]
        known += kernels.predicted(PredictedCost(store, device), others, device)
        configs = kernels.worth_compiling(known, args.kernels)
        kernels.keep(listed, configs)
    print(f"{len(configs)} kernels chosen in {time.monotonic() - started:.0f} s", flush=True)
    ready = kernels.compile_in_time(configs, min(args.compile_seconds, left(args)))
    print(f"{ready} of {len(configs)} CUTLASS kernels are compiled", flush=True)


def rank_all(args: argparse.Namespace, work: Work, cases: list[tuple[str, int]], pool: Any) -> None:
    import placement_measure
    from placement_kernels import kept

    found = pool.map(workloads_of, [(n, b, args.precision) for n, b in cases])
    backends = backends_of(args, kept(work.folder / "kernels.json"))
    pairs = placement_measure.rank(args, [w for each in found for w in each], backends)
    placement_measure.keep(work.folder / "wanted.json", pairs)
    print(f"{len(pairs)} candidates are worth measuring", flush=True)


def host_all(args: argparse.Namespace, work: Work, cases: list[tuple[str, int]], pool: Any) -> None:
    import placement_measure

    found = pool.map(workloads_of, [(n, b, args.precision) for n, b in cases])
    hosts = placement_measure.host_ratios(
        args, [w for each in found for w in each], backends_of(args)
    )
    work.hosts_file.write_text(json.dumps(hosts.to_json()))
    print("host times here over those recorded:", hosts.to_json(), flush=True)


def measure_all(
    args: argparse.Namespace, work: Work, cases: list[tuple[str, int]], pool: Any
) -> None:
    import placement_measure

    pairs = placement_measure.kept(work.folder / "wanted.json")
    count = placement_measure.measure_on_all(args, pairs, work.folder)
    print(f"{count} of {len(pairs)} candidates have figures", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NAMES, default=list(DEFAULT))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--precision", default="float16")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--records", default="", help="file of measurements, read and added to")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES[1:-1]))
    parser.add_argument("--most", type=int, default=None, help="candidates to measure of a backend")
    parser.add_argument("--measure-seconds", type=float, default=math.inf, help="of measuring")
    parser.add_argument("--compile", action="store_true", help="let every CUTLASS kernel take part")
    parser.add_argument("--kernels", type=int, default=40, help="CUTLASS kernels to compile")
    parser.add_argument("--compile-seconds", type=float, default=math.inf, help="last start of one")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--plans", nargs="+", help="only these are run, by variant/objective")
    parser.add_argument("--one-stream", action="store_true", help="no plan on several streams")
    parser.add_argument("--skip-tvm", action="store_true", help="not all by TVM's own kernels")
    parser.add_argument("--again", action="store_true", help="do again what the folder holds")
    parser.add_argument("--sample-ms", type=float, default=8.0, help="of each sample")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of the whole run")
    parser.add_argument("--work", default="placement-work", help="folder of plans, modules, runs")
    parser.add_argument("--out", default="placement.json")
    args = parser.parse_args()
    args.records = args.records or None
    args.ends = time.monotonic() + args.seconds
    args.device = dataclasses.asdict(device())
    work = Work(Path(args.work))
    cases = [(n, b) for b in args.batches for n in args.networks]
    context = multiprocessing.get_context("spawn")
    stages = (
        ("kernels", compile_kernels), ("rank", rank_all), ("measure", measure_all),
        ("host", host_all),
        ("plan", plan_all), ("build", build_all),
    )  # fmt: skip
    for stage, do in stages:
        if stage in args.stages:
            started = time.perf_counter()
            with concurrent.futures.ProcessPoolExecutor(args.jobs, context) as pool:
                do(args, work, cases, pool)
            print(f"{stage}: {time.perf_counter() - started:.1f} s", flush=True)
    for stage, run in (("run", run_all), ("context", context_all)):
        if stage in args.stages:
            started = time.perf_counter()
            run(args, work, cases)
            print(f"{stage}: {time.perf_counter() - started:.1f} s", flush=True)
    found = {key: work.case(key) for key in work.cases()}
    save(args.out, found)
    report({key: case for key, case in found.items() if case["runs"]})


def device() -> Any:
    """The GPU of this machine, or an H200 where there is none."""
    from convoy.errors import NoGpu
    from convoy.ir.device import Device
    from convoy.runtime import current_device

    try:
        return current_device()
    except NoGpu:
        return Device()


if __name__ == "__main__":
    main()
