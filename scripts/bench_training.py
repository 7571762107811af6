"""Time a training step of ResNet-50: Convoy and PyTorch side by side.

    python scripts/bench_training.py --batches 8 64 --peers half amp --out training.json

A step is forward, backward and SGD with momentum on 224x224 pictures, batch norm with batch
statistics, 16-bit convolutions with float32 accumulation, one CUDA graph. Convoy keeps float32
weights; PyTorch runs with half-precision weights ("half") and under autocast ("amp"). The first
losses of each are printed beside those of PyTorch in float32: all start from the same parameters.

``--profile`` prints where the time of Convoy's step goes, by kernel, as the CUDA profiler sees it.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_tools import Bench, Row
from convoy.training import LossModule, Sgd, TrainingSession, resnet50

RATE, MOMENTUM, STEPS = 0.05, 0.9, 6


def data(batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((batch, 224, 224, 3)).astype(np.float32)
    return x, rng.integers(0, 1000, batch).astype(np.int32)


def convoy_step(args: argparse.Namespace, net: LossModule, batch: int) -> Row:
    import convoy
    from peers.timing import measure

    step = net.step(Sgd(MOMENTUM))
    started = time.perf_counter()
    built = convoy.build(
        step.module, "cuda", backends=(*args.backends, "tvm"), records=args.records,
        streams=args.streams, measure=not args.no_measure, most_measured=args.most,
    )  # fmt: skip
    build_s = time.perf_counter() - started
    session = TrainingSession(built, step, net.initial, RATE)
    x, labels = data(batch)
    losses = [session(x=x, labels=labels) for _ in range(STEPS)]
    timing = measure(session.run, session.session.synchronize, args.seconds)
    if args.profile:
        profile(session, args.profile_out and f"{args.profile_out}.{batch}.txt")
    assert built.plan is not None
    return {
        **timing.to_json(), "losses": losses, "build_s": round(build_s, 1),
        "chosen": built.plan.backends(), "convolutions_us": round(built.plan.total_us(), 1),
    }  # fmt: skip


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


def torch_step(args: argparse.Namespace, net: LossModule, batch: int, kind: str) -> Row:
    from peers.training import Step, time_step

    step = Step(kind, *data(batch), net.initial, RATE)
    losses = []
    for _ in range(STEPS):
        step()
        losses.append(float(step.loss))
    if kind == "float32":
        return {"losses": losses}
    return {**time_step(step, args.seconds).to_json(), "losses": losses}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--backends", nargs="+", default=["cudnn", "cutlass", "hopper"])
    parser.add_argument("--peers", nargs="*", default=["half", "amp", "float32"])
    parser.add_argument("--records", default=None, help="file of measurements to use and extend")
    parser.add_argument("--streams", default="1", help='1, a number, or "auto"')
    parser.add_argument("--no-measure", action="store_true", help="place from records alone")
    parser.add_argument("--most", type=int, help="candidates of each backend to measure")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each figure")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--profile-out", default="", help="start of the profiles' names")
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    args.streams = int(args.streams) if args.streams.isdigit() else args.streams
    bench = Bench("training step of ResNet-50", args.out)
    cases: list[tuple[Row, Callable[[], Row]]] = []
    for batch in args.batches:
        net = resnet50(batch)

        def ours(net: LossModule = net, batch: int = batch) -> Row:
            return convoy_step(args, net, batch)

        cases.append(({"batch": batch, "system": "convoy"}, ours))
        for kind in args.peers:

            def theirs(net: LossModule = net, batch: int = batch, kind: str = kind) -> Row:
                return torch_step(args, net, batch, kind)

            cases.append(({"batch": batch, "system": f"pytorch {kind}"}, theirs))
    bench.run(cases)
    print(table(bench.rows))
    return 0 if all("failed" not in row for row in bench.rows) else 1


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["batch  system            ms/step  spread  images/s  first losses"]
    for row in rows:
        if "failed" in row:
            lines.append(f"{row['batch']:5}  {row['system']:16}  failed: {row['failed'][:300]}")
            continue
        ms = row.get("ms")
        figures = f"{ms:7.3f} {row['spread_ms']:7.3f} {row['batch'] / ms * 1e3:9.0f}" if ms else ""
        losses = " ".join(f"{loss:.4f}" for loss in row["losses"])
        lines.append(f"{row['batch']:5}  {row['system']:16}  {figures:25}  {losses}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
