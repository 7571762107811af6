"""Time a training step of ResNet-50: Convoy and PyTorch side by side.

    python scripts/bench_training.py --batches 8 64 --peers half amp --out training.json

A step is forward, backward and SGD with momentum on 224x224 pictures, batch norm with batch
statistics, 16-bit convolutions with float32 accumulation, one CUDA graph. Convoy keeps float32
weights; PyTorch runs with half-precision weights ("half") and under autocast ("amp"). All start
from the same parameters, and the first losses are compared with those of PyTorch in float32: a
time of Convoy's counts only if its losses agree.

Compiling takes longer than timing. ``--prepare`` compiles the kernels that will be measured,
``--modules FOLDER --build-only`` the whole step; a run with that folder takes what lies there.
``--alone cudnn`` adds the step with all convolutions on one backend, ``--several`` the placed one
on several streams. ``--profile`` prints where the time of Convoy's step goes, by kernel, as the
CUDA profiler sees it.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_tools import Bench, Row
from convoy.runtime.compiled import CompiledModule
from convoy.training import LossModule, Sgd, TrainingSession, TrainStep, resnet50

#: A rate at which a small batch is learnt steadily: at ten times this the losses of 8 pictures go
#: up again after two steps, and differ between runs of one system by as much as between systems.
RATE, MOMENTUM, STEPS = 0.002, 0.9, 6
#: Largest relative deviation of a loss from the float32 one, or FACTOR times what a peer deviates.
LIMIT, FACTOR = 2e-2, 3


@dataclass(frozen=True)
class System:
    """A step of Convoy's: the backends that it may use, and streams; ``file`` ends its module's
    name."""

    name: str
    backends: tuple[str, ...]
    streams: int | str
    file: str = ""


def systems(args: argparse.Namespace) -> list[System]:
    found = [System("convoy", tuple(args.backends), args.streams)]
    titles = {"cudnn": "cuDNN", "cutlass": "CUTLASS"}
    for name in args.alone:
        title = f"convoy, {titles.get(name, name)} alone"
        found.append(System(title, (name,), args.streams, f"-{name}"))
    if args.several:
        found.append(System("convoy, streams", tuple(args.backends), "auto", "-streams"))
    return found


def data(batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((batch, 224, 224, 3)).astype(np.float32)
    return x, rng.integers(0, 1000, batch).astype(np.int32)


def build(
    args: argparse.Namespace, system: System, step: TrainStep, batch: int
) -> tuple[CompiledModule, float]:
    """The compiled step and the seconds that it took; from ``--modules`` where it lies there."""
    import convoy

    name = f"training-step-n{batch}{system.file}.so"
    path = Path(args.modules) / name if args.modules else None
    if path and path.exists():
        return convoy.load(path), 0.0
    started = time.perf_counter()
    built = convoy.build(
        step.module, "cuda", backends=(*system.backends, "tvm"), records=args.records,
        streams=system.streams, measure=not args.no_measure, most_measured=args.most,
    )  # fmt: skip
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        built.export_library(path)
    return built, time.perf_counter() - started


def prepare(args: argparse.Namespace, net: LossModule) -> Row:
    """Compile what placement will measure, into the cache of kernels; nothing runs on the GPU."""
    from convoy.ir.candidate import Decline
    from convoy.placement.api import find_backends, workloads_of
    from convoy.runtime import current_device

    names, device = (*args.backends, "tvm"), current_device()
    workloads = workloads_of(net.step(Sgd(MOMENTUM)).module, backends=names)
    prepared: Row = {}
    for backend in find_backends([name for name in args.backends if name != "cudnn"]):
        jobs = []
        for workload in workloads:
            found = backend.propose(workload, device)
            if not isinstance(found, Decline):
                found = sorted(found, key=lambda candidate: candidate.priority)
                jobs += [(workload, candidate) for candidate in found[: args.most]]
        backend.prepare(jobs, device)
        prepared[backend.name] = len({candidate.kernel for _, candidate in jobs})
    return {"prepared": prepared}


def convoy_step(
    args: argparse.Namespace,
    system: System,
    net: LossModule,
    batch: int,
    known: dict[str, list[float]],
) -> Row:
    """``known`` are the losses of the peers by kind."""
    from peers.timing import measure

    step = net.step(Sgd(MOMENTUM))
    built, build_s = build(args, system, step, batch)
    assert built.plan is not None
    row: Row = {
        "build_s": round(build_s, 1), "chosen": built.plan.backends(),
        "convolutions_us": round(built.plan.total_us(), 1),
    }  # fmt: skip
    if args.build_only:
        return row
    session = TrainingSession(built, step, net.initial, RATE)
    x, labels = data(batch)
    row["losses"] = [session(x=x, labels=labels) for _ in range(STEPS)]
    if problem := disagreement(row["losses"], known):
        return {**row, "failed": problem}
    row |= measure(session.run, session.session.synchronize, args.seconds).to_json()
    if args.profile:
        profile(session, args.profile_out and f"{args.profile_out}{system.file}.{batch}.txt")
    return row


def disagreement(losses: list[float], known: dict[str, list[float]]) -> str:
    """How the losses differ from the float32 ones by more than rounding does; empty if not."""
    want = known.get("float32")
    if want is None:
        return ""
    for i, (loss, exact) in enumerate(zip(losses, want, strict=True)):
        of_peers = max(abs(peer[i] - exact) for peer in known.values())
        allowed = max(LIMIT * exact, FACTOR * of_peers)
        if not abs(loss - exact) <= allowed:
            return f"loss {loss:.4f} at step {i}, {exact:.4f} in float32, allowed {allowed:.4f}"
    return ""


def profile(session: TrainingSession, path: str, steps: int = 5) -> None:
    """Device time by kernel name, of ``steps`` replays."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    session.run()
    session.session.synchronize()
    with profiler(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(steps):
            session.run()
        session.session.synchronize()
    spent: dict[str, list[float]] = defaultdict(list)
    for event in found.events():
        spent[event.name].append(event.device_time if hasattr(event, "device_time") else 0.0)
    rows = sorted(((sum(v) / steps, len(v) / steps, k) for k, v in spent.items()), reverse=True)
    groups: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for total, count, name in rows:
        key = re.sub(r"\d+", "", name)[:70] if name.endswith("_kernel") else name[:40]
        groups[key][0] += total
        groups[key][1] += count
    print(f"{sum(r[0] for r in rows):9.1f} us of kernels, {sum(r[1] for r in rows):.0f} launches")
    for key, (total, count) in sorted(groups.items(), key=lambda g: -g[1][0])[:60]:
        print(f"{total:9.1f} us {count:6.0f} x {key}")
    if path:
        lines = [f"{total:9.2f} us {count:5.1f} x {name[:160]}" for total, count, name in rows]
        Path(path).write_text("\n".join(lines))


def torch_step(
    args: argparse.Namespace, net: LossModule, batch: int, kind: str, known: dict[str, list[float]]
) -> Row:
    from peers.training import Step, time_step

    step = Step(kind, *data(batch), net.initial, RATE)
    losses = []
    for _ in range(STEPS):
        step()
        losses.append(float(step.loss))
    known[kind] = losses
    if kind == "float32":
        return {"losses": losses}
    return {**time_step(step, args.seconds).to_json(), "losses": losses}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--backends", nargs="+", default=["cudnn", "cutlass", "hopper"])
    parser.add_argument("--alone", nargs="*", default=[], help="backends to time by themselves too")
    parser.add_argument("--several", action="store_true", help="also on several streams")
    parser.add_argument("--peers", nargs="*", choices=["float32", "half", "amp"],
                        default=["half", "amp"])  # fmt: skip
    parser.add_argument("--records", default=None, help="file of measurements to use and extend")
    parser.add_argument("--streams", default="1", help='1, a number, or "auto"')
    parser.add_argument("--no-measure", action="store_true", help="place from records alone")
    parser.add_argument("--most", type=int, help="candidates of each backend to measure")
    parser.add_argument("--modules", default="", help="folder of compiled steps")
    parser.add_argument("--prepare", action="store_true", help="compile kernels, time nothing")
    parser.add_argument("--build-only", action="store_true", help="compile, time nothing")
    parser.add_argument("--no-reference", action="store_true", help="no losses in float32")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each figure")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--profile-out", default="", help="start of the profiles' names")
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    args.streams = int(args.streams) if args.streams.isdigit() else args.streams
    bench = Bench("training step", args.out)
    cases: list[tuple[Row, Callable[[], Row]]] = []
    for batch in args.batches:
        net, fixed = resnet50(batch), {"model": "resnet50", "batch": batch}
        known: dict[str, list[float]] = {}
        peers = [] if args.no_reference else ["float32"]
        peers += [kind for kind in args.peers if kind not in peers]
        if args.prepare:
            cases.append((fixed, lambda net=net: prepare(args, net)))
            continue
        for kind in [] if args.build_only else peers:

            def theirs(
                net: LossModule = net, batch: int = batch, kind: str = kind,
                known: dict[str, list[float]] = known,
            ) -> Row:  # fmt: skip
                return torch_step(args, net, batch, kind, known)

            cases.append((fixed | {"system": f"pytorch {kind}"}, theirs))

        for system in systems(args):

            def ours(
                system: System = system, net: LossModule = net, batch: int = batch,
                known: dict[str, list[float]] = known,
            ) -> Row:  # fmt: skip
                return convoy_step(args, system, net, batch, known)

            cases.append((fixed | {"system": system.name}, ours))
    bench.run(cases)
    if not args.prepare:
        print(table(bench.rows))
    return 0 if all("failed" not in row for row in bench.rows) else 1


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["batch  system                  ms/step  spread  images/s  first losses"]
    for row in rows:
        if "failed" in row:
            lines.append(f"{row['batch']:5}  {row['system']:22}  failed: {row['failed'][:300]}")
            continue
        ms = row.get("ms")
        figures = f"{ms:7.3f} {row['spread_ms']:7.3f} {row['batch'] / ms * 1e3:9.0f}" if ms else ""
        losses = " ".join(f"{loss:.4f}" for loss in row.get("losses", []))
        lines.append(f"{row['batch']:5}  {row['system']:22}  {figures:25}  {losses}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
