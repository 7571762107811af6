"""Check whole training steps against PyTorch: every gradient, the moving statistics, the losses.

    python scripts/check_training.py --networks small wide resnet50 --precisions float32 float16

All start from the same parameters and data. The reference is the same network in PyTorch in
float64. The limit of a precision is the error of PyTorch itself in it (float16 and bfloat16: under
autocast), times a factor: no fixed limit on the error of 16 bits in a deep network would be both
sharp and fair. Gradients are read as the velocities after the first step, as they enter the update.

Prints a line for each network and precision, with --out writes JSON; ends with 1 if one failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for tests.zoo
sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness.rows import Bench, Row

NETWORKS = ("small", "biases", "wide", "resnet50")  # of tests/zoo/steps.py
RATE, MOMENTUM = 0.01, 0.9
FACTOR = 3.0  # of PyTorch's own error in the same precision
#: Least limits, for errors of PyTorch's that are small by luck.
FLOORS = {"float32": 1e-4, "tf32": 2e-3, "float16": 4e-3, "bfloat16": 3e-2}

Array = np.ndarray


@dataclass(frozen=True)
class Course:
    """The results of a few steps: losses, the gradients of the first, the statistics behind it."""

    losses: list[float]
    gradients: dict[str, Array]
    moved: dict[str, Array]


def course_of_peer(case: Any, net: Any, batch: int, precision: str, device: str) -> Course:
    from tests.zoo import steps
    from tests.zoo.descent import Descent

    how = (precision, RATE, MOMENTUM, device)
    descent = Descent(case.logits, net.initial, net.trainable, *how)
    losses: list[float] = []
    first: dict[str, Array] = {}
    moved: dict[str, Array] = {}
    for x, labels in steps.data(case, batch):
        loss, gradients = descent.step(x, labels)
        losses.append(loss)
        if not first:
            state = descent.state()
            first, moved = gradients, {name: state[name] for name in net.updates}
    return Course(losses, first, moved)


def course_of_convoy(
    case: Any, net: Any, batch: int, target: str, options: dict[str, Any]
) -> tuple[Course, Any]:
    from tests.zoo import steps

    import convoy
    from convoy.training import Sgd, TrainingSession

    step = net.step(Sgd(MOMENTUM))
    built = convoy.build(step.module, target, **options)
    session = TrainingSession(built, step, net.initial, RATE)
    losses: list[float] = []
    state: dict[str, Array] = {}
    for x, labels in steps.data(case, batch):
        losses.append(session(x=x, labels=labels))
        state = state or session.state()
    gradients = {name: state[f"{name}_velocity"] for name in net.trainable}
    return Course(losses, gradients, {name: state[name] for name in net.updates}), built.plan


def errors(got: dict[str, Array], want: dict[str, Array]) -> dict[str, float]:
    """Relative L2 error of each tensor, and of all together under the empty name.

    A tensor whose reference is nearly nothing beside the others counts relative to them.
    """
    difference = {n: np.sum((got[n].astype("float64") - w) ** 2) for n, w in want.items()}
    size = {n: np.sum(w.astype("float64") ** 2) for n, w in want.items()}
    elements = {n: w.size for n, w in want.items()}
    mean = sum(size.values()) / sum(elements.values())
    found = {
        n: float(np.sqrt(difference[n] / max(size[n], 1e-6 * mean * elements[n]))) for n in want
    }
    found[""] = float(np.sqrt(sum(difference.values()) / sum(size.values())))
    return found


def check(args: argparse.Namespace, name: str, precision: str) -> Row:
    from tests.zoo import steps

    case, batch = steps.CASES[name], args.batch
    if args.image:
        case = dataclasses.replace(case, picture=(args.image, args.image, case.picture[2]))
    net = steps.loss_module(case, batch)
    device = "cuda" if args.target == "cuda" else "cpu"
    options: dict[str, Any] = {"precision": precision}
    if args.target == "cuda":
        options |= {
            "backends": (*args.backends, "tvm"), "records": args.records, "streams": 1,
            "measure": False,
        }  # fmt: skip
    started = time.perf_counter()
    ours, plan = course_of_convoy(case, net, batch, args.target, options)
    seconds = time.perf_counter() - started
    exact = course_of_peer(case, net, batch, "float64", device)
    theirs = course_of_peer(case, net, batch, precision, device)

    failed = []
    row: Row = {"tensors": len(exact.gradients), "took_build_s": round(seconds, 1)}
    for what in ("gradients", "moved"):
        reference = getattr(exact, what)
        if not reference:
            continue
        mine, peers = (errors(getattr(course, what), reference) for course in (ours, theirs))
        worst = max(mine, key=lambda n: mine[n] if mine[n] == mine[n] else np.inf)
        allowed = max(FLOORS[precision], FACTOR * max(peers.values()))
        together = max(FLOORS[precision], FACTOR * peers[""])
        row[what] = {
            "error": mine[""], "of_peer": peers[""], "worst": mine[worst],
            "worst_name": worst, "worst_of_peer": max(peers.values()),
        }  # fmt: skip
        if not mine[worst] <= allowed or not mine[""] <= together:
            failed.append(f"{what} of {worst or 'all'}: {mine[worst]:.2g}, allowed {allowed:.2g}")
    row |= {"losses": ours.losses, "exact": exact.losses, "of_peer": theirs.losses}
    for i, (loss, peer, want) in enumerate(
        zip(ours.losses, theirs.losses, exact.losses, strict=True)
    ):
        allowed = max(FLOORS[precision], FACTOR * abs(peer - want) / want)
        if not abs(loss - want) / want <= allowed:
            failed.append(f"loss of step {i}: {loss:.5f} for {want:.5f}, allowed {allowed:.2g}")
    if plan is not None:
        row["chosen"] = plan.backends()
    row["wrong"] = failed
    return row


def line(row: Row) -> str:
    head = f"{row['network']:9} N={row['batch']:<3} {row['precision']:9}"
    if "failed" in row:
        return f"{head} failed: {row['failed'][:300]}"
    gradients = row["gradients"]
    losses = " ".join(f"{loss:.4f}" for loss in row["losses"])
    return (
        f"{head} {'WRONG' if row['wrong'] else 'right'}  {row['tensors']} gradients: error "
        f"{gradients['error']:.1e} (PyTorch {gradients['of_peer']:.1e}), worst "
        f"{gradients['worst']:.1e} (PyTorch {gradients['worst_of_peer']:.1e})  losses {losses}"
        + "".join(f"\n    {text}" for text in row["wrong"])
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    add("--precisions", nargs="+", choices=FLOORS, default=["float32", "float16"])
    add("--batch", type=int, default=8)
    add("--image", type=int, help="height and width, instead of the network's own")
    add("--target", choices=["cuda", "llvm"], default="cuda")
    add("--backends", nargs="*", default=["cudnn", "cutlass", "hopper"])
    add("--records", default=None, help="file of measurements to place from")
    add("--out", default="")
    return made


def main() -> int:
    args = parser().parse_args()
    bench = Bench("training steps against float64", args.out)
    cases: list[tuple[Row, Callable[[], Row]]] = [
        (
            {"network": name, "batch": args.batch, "precision": precision},
            functools.partial(check, args, name, precision),
        )
        for name in args.networks
        for precision in args.precisions
    ]
    bench.run(cases)
    for row in bench.rows:
        print(line(row))
    return int(any("failed" in row or row["wrong"] for row in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
