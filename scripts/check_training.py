"""Check whole training steps against PyTorch: every gradient, the moving statistics, the losses.

    python scripts/check_training.py --networks small wide resnet50 --precisions float32 float16

All start from the same parameters and data. The reference is the same network in PyTorch in
float64. What a precision may deviate is what PyTorch itself deviates in it (float16 and bfloat16:
under autocast), times a factor: no limit on the error of 16 bits in a deep network would be both
sharp and fair. Gradients are read as the velocities after the first step, as they enter the update.

Prints a line for each network and precision, with --out writes JSON; ends with 1 where one failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_tools import Bench, Row
from convoy.training import LossModule, Network, Sgd, TrainingSession
from convoy.training.resnet import basic_blocks, bottlenecks

STEPS, RATE, MOMENTUM = 4, 0.01, 0.9
DAMPING = 0.1
FACTOR = 3.0  # of PyTorch's own error in the same precision
#: What is allowed in any case, for errors of PyTorch's that are small by luck.
FLOORS = {"float32": 1e-4, "tf32": 2e-3, "float16": 4e-3, "bfloat16": 3e-2}

Array = np.ndarray


def wide_layers(net: Any) -> Any:
    """What residual networks lack: dilation, groups, a bias behind no norm, a stride of 3."""
    x = net.relu(net.batch_norm(net.conv(net.x, 64, 7, 2, name="a"), name="an"))
    x = net.max_pool(x, 3, 2, 1)
    y = net.conv(x, 96, 3, 1, dilation=2, groups=2, name="b")
    z = net.conv(x, 96, 3, 1, padding=1, bias=True, name="c")
    x = net.relu(net.batch_norm(net.add(y, z), name="bn"))
    x = net.relu(net.conv(x, 40, 3, 3, padding=0, name="d"))
    return net.dense(net.mean(x), 10, name="classifier")


@dataclass(frozen=True)
class Case:
    """``logits`` builds the network from the layers of a Network or of the reference.

    Norms whose name ends in ``damped`` start with a gamma of DAMPING. From a random start the
    gradients of many layers are chaotic: those of ResNet-50 in float32 deviate by 2e-2 from
    float64, in float16 by 7e-1, which would hide a wrong kernel. Near the identity they are not.
    """

    logits: Callable[[Any], Any]
    picture: tuple[int, int, int]
    classes: int
    damped: str = ""


CASES = {
    "small": Case(lambda net: basic_blocks(net, (16, 32, 64), 10, True), (16, 16, 3), 10),
    "biases": Case(lambda net: basic_blocks(net, (16, 32), 10, False), (16, 16, 3), 10),
    "wide": Case(wide_layers, (63, 65, 3), 10),
    "resnet50": Case(lambda net: bottlenecks(net, 1000), (224, 224, 3), 1000, "_c_norm"),
}


def loss_module(case: Case, batch: int) -> LossModule:
    net = Network(batch, *case.picture)
    made = net.finish(case.logits(net))
    ending = f"{case.damped}_gamma"
    initial = {
        name: value * np.float32(DAMPING) if case.damped and name.endswith(ending) else value
        for name, value in made.initial.items()
    }
    return dataclasses.replace(made, initial=initial)


def data(case: Case, batch: int) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(3)
    return [
        (
            rng.standard_normal((batch, *case.picture)).astype(np.float32),
            rng.integers(0, case.classes, batch).astype(np.int32),
        )
        for _ in range(STEPS)
    ]


@dataclass(frozen=True)
class Course:
    """What a few steps gave: losses, the gradients of the first one, the statistics behind it."""

    losses: list[float]
    gradients: dict[str, Array]
    moved: dict[str, Array]


def course_of_peer(
    case: Case, net: LossModule, batch: int, precision: str, device: str
) -> Course:  # fmt: skip
    from peers.layers import Descent

    descent = Descent(
        case.logits, net.initial, net.trainable, precision, RATE, MOMENTUM, device
    )  # fmt: skip
    losses: list[float] = []
    first: dict[str, Array] = {}
    moved: dict[str, Array] = {}
    for x, labels in data(case, batch):
        loss, gradients = descent.step(x, labels)
        losses.append(loss)
        if not first:
            state = descent.state()
            first, moved = gradients, {name: state[name] for name in net.updates}
    return Course(losses, first, moved)


def course_of_convoy(
    case: Case, net: LossModule, batch: int, target: str, options: dict[str, Any], path: str = ""
) -> tuple[Course, Any]:
    import convoy

    step = net.step(Sgd(MOMENTUM))
    built = convoy.load(path) if path else convoy.build(step.module, target, **options)
    session = TrainingSession(built, step, net.initial, RATE)
    losses: list[float] = []
    state: dict[str, Array] = {}
    for x, labels in data(case, batch):
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
    case, batch = CASES[name], args.batch
    if args.image:
        case = dataclasses.replace(case, picture=(args.image, args.image, case.picture[2]))
    net = loss_module(case, batch)
    device = "cuda" if args.target == "cuda" else "cpu"
    options: dict[str, Any] = {"precision": precision}
    if args.target == "cuda":
        options |= {
            "backends": (*args.backends, "tvm"), "records": args.records, "streams": 1,
            "measure": args.measure > 0, "most_measured": args.measure or None,
        }  # fmt: skip
    started = time.perf_counter()
    ours, plan = course_of_convoy(case, net, batch, args.target, options, args.module)
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
    for i, (mine, peer, want) in enumerate(
        zip(ours.losses, theirs.losses, exact.losses, strict=True)
    ):
        allowed = max(FLOORS[precision], FACTOR * abs(peer - want) / want)
        if not abs(mine - want) / want <= allowed:
            failed.append(f"loss of step {i}: {mine:.5f} for {want:.5f}, allowed {allowed:.2g}")
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--precisions", nargs="+", choices=FLOORS, default=["float32", "float16"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--image", type=int, help="height and width, instead of the network's own")
    parser.add_argument("--target", choices=["cuda", "llvm"], default="cuda")
    parser.add_argument("--backends", nargs="*", default=["cudnn", "cutlass", "hopper"])
    parser.add_argument("--records", default=None, help="file of measurements to place from")
    parser.add_argument("--measure", type=int, default=0, help="candidates of a backend to measure")
    parser.add_argument("--module", default="", help="compiled step of the one case, instead")
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    bench = Bench("training steps against float64", args.out)
    cases: list[tuple[Row, Callable[[], Row]]] = [
        (
            {"network": name, "batch": args.batch, "precision": precision},
            lambda name=name, precision=precision: check(args, name, precision),
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
