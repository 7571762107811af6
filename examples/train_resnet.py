"""Train a small residual network on handwritten digits: forward, backward and update in one module.

    python examples/train_resnet.py                  # on the GPU where there is one
    python examples/train_resnet.py --target llvm    # on the CPU

The digits come with scikit-learn (1797 pictures of 8x8). The network is differentiated by
``relax.transform.Gradient`` under convoy's rules; its convolutions and their gradients are placed
on the GPU's libraries in 16 bit with float32 accumulation and float32 weights. The losses of the
first steps are printed beside those of the same module on the CPU in float32.

Kernels are chosen by measuring the first few that cuDNN proposes; ``--backends cudnn cutlass hopper
tvm --most 100`` measures all there are, which compiles CUTLASS kernels for minutes the first time.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits

import convoy
from convoy.errors import NoGpu
from convoy.runtime import current_device
from convoy.training import Sgd, TrainingSession, small_resnet

COMPARED = 10


def batches(x, labels, size, epochs, seed=0):
    """Shuffled batches of equal size, epoch after epoch."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield x[chosen], labels[chosen]


def accuracy(session, x, labels, size):
    """Share of right answers with batch statistics; the learning rate is 0, so nothing is learnt,
    and the state is put back."""
    rate, state, right = session.learning_rate, session.state(), 0
    session.learning_rate = 0.0
    for start in range(0, len(x) - size + 1, size):
        session(x=x[start : start + size], labels=labels[start : start + size])
        logits = session.session.output(1).numpy()
        right += int((logits.argmax(1) == labels[start : start + size]).sum())
    session.learning_rate = rate
    for name, value in state.items():
        session.session.set_input(name, value)
    return right / (len(x) // size * size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=["cuda", "llvm"], help="default: cuda with a GPU")
    parser.add_argument("--precision", default=None, help="float16, bfloat16, tf32 or float32")
    parser.add_argument("--backends", nargs="+", default=["cudnn", "tvm"])
    parser.add_argument("--most", type=int, default=4, help="candidates to measure of a backend")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.1)
    args = parser.parse_args()
    target = args.target
    if target is None:
        try:
            current_device()
            target = "cuda"
        except NoGpu:
            target = "llvm"

    digits = load_digits()
    x = (digits.images / 16).astype(np.float32)[..., None]
    labels = digits.target.astype(np.int32)
    test = 1408  # 22 batches of 64 to learn from, the rest to test on
    net = small_resnet(args.batch, image=8, channels=1, classes=10)
    step = net.step(Sgd(momentum=0.9, weight_decay=1e-4))

    console, started = Console(), time.perf_counter()
    with console.status(f"compiling the training step for {target}"):
        options = {"precision": args.precision} if args.precision else {}
        if target == "cuda":
            options |= {"backends": tuple(args.backends), "most_measured": args.most}
        built = convoy.build(step.module, target, **options)
        same = target == "llvm" and not options
        reference = built if same else convoy.build(step.module, "llvm")
    console.print(f"compiled in {time.perf_counter() - started:.1f} s")
    if built.plan is not None:
        console.print(f"placed: {built.plan.backends()}")
    session = TrainingSession(built, step, net.initial, args.rate)
    float32 = TrainingSession(reference, step, net.initial, args.rate)

    columns = ("step", f"loss, {target}", "loss, CPU float32", "difference")
    table = Table(*columns, title="The first steps")
    first = list(batches(x[:test], labels[:test], args.batch, 1))[:COMPARED]
    for i, (images, answers) in enumerate(first):
        pair = [s(x=images, labels=answers) for s in (session, float32)]
        difference = f"{pair[0] / pair[1] - 1:+.2%}"
        table.add_row(str(i), *(f"{loss:.5f}" for loss in pair), difference)
    console.print(table)

    session = TrainingSession(built, step, net.initial, args.rate)
    data = list(batches(x[:test], labels[:test], args.batch, args.epochs))
    losses, started = [], time.perf_counter()
    for images, answers in track(data, "training", console=console):
        losses.append(session(x=images, labels=answers))
    seconds = time.perf_counter() - started
    per_epoch = len(data) // args.epochs
    table = Table("epoch", "mean loss", title=f"{len(data)} steps in {seconds:.1f} s")
    for epoch in range(args.epochs):
        part = losses[epoch * per_epoch : (epoch + 1) * per_epoch]
        table.add_row(str(epoch + 1), f"{np.mean(part):.4f}")
    console.print(table)
    share = accuracy(session, x[test:], labels[test:], args.batch)
    console.print(f"right answers on unseen digits: {share:.1%}")


if __name__ == "__main__":
    main()
