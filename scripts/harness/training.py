"""The training step of ResNet-50: forward, backward and SGD with momentum on 224x224 images.

Batch norm uses the statistics of the batch; convolutions are in 16 bit with float32 accumulation;
a step is one CUDA graph. Convoy keeps float32 weights; PyTorch has weights in half precision
("half") or autocast ("amp"). All start from the same parameters, and the first losses are compared
with those of PyTorch in float32: a time of Convoy counts only if its losses agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .rows import Row

Array = np.ndarray[Any, Any]
#: The learning rate, at which a small batch is learnt steadily: at ten times this the losses of 8
#: images go up again after two steps, and differ between runs as much as between systems.
RATE, MOMENTUM, STEPS = 0.002, 0.9, 6
#: Largest relative deviation of a loss from the float32 one, or FACTOR times that of a peer.
LIMIT, FACTOR = 2e-2, 3
#: Peers by kind, and their names in tables; float32 gives the losses to compare with, no time.
PEERS = {"float32": "pytorch float32", "half": "pytorch half", "amp": "pytorch amp"}


def module(batch: int) -> Any:
    """The step as a Relax module."""
    from convoy.training import Sgd, resnet50

    return resnet50(batch).step(Sgd(MOMENTUM)).module


def data(batch: int) -> tuple[Array, Array]:
    """Images (n, 224, 224, 3) in float32 and labels (n,) in int32."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((batch, 224, 224, 3)).astype(np.float32)
    return x, rng.integers(0, 1000, batch).astype(np.int32)


def inputs(batch: int) -> dict[str, Array]:
    """Inputs of a step that can be repeated for ever: with a learning rate of zero the weights
    stay as they were initialized."""
    from convoy.training import Sgd, resnet50

    net = resnet50(batch)
    step = net.step(Sgd(MOMENTUM))
    x, labels = data(batch)
    given = {"x": x, "labels": labels, "learning_rate": np.zeros((), "float32")}
    return {**given, **dict(zip(step.state, step.initial_state(net.initial), strict=True))}


def probe(batch: int, built: Any) -> Row:
    """The losses of the first steps of a compiled module."""
    from convoy.training import Sgd, TrainingSession, resnet50

    net = resnet50(batch)
    session = TrainingSession(built, net.step(Sgd(MOMENTUM)), net.initial, RATE)
    x, labels = data(batch)
    return {"losses": [session(x=x, labels=labels) for _ in range(STEPS)]}


def peer(kind: str, batch: int) -> Row:
    """Losses and, unless float32, times of PyTorch's step."""
    from convoy.training import resnet50

    from .torch_training import Step, time_step

    step = Step(kind, *data(batch), resnet50(batch).initial, RATE)
    losses = []
    for _ in range(STEPS):
        step()
        losses.append(float(step.loss))
    times = {} if kind == "float32" else time_step(step).to_json()
    return {"system": PEERS[kind], **times, "losses": losses}


def check(rows: list[Row]) -> None:
    """Mark each row whose losses disagree with float32's at its batch size as ``failed``."""
    for row in rows:
        same = [r for r in rows if r["batch"] == row["batch"] and "losses" in r]
        peers = {r["system"]: r["losses"] for r in same if r["system"] in PEERS.values()}
        if "losses" in row and row["system"] not in peers:
            problem = disagreement(row["losses"], peers)
            if problem:
                row["failed"] = problem
                row.pop("ms", None)


def disagreement(losses: list[float], peers: dict[str, list[float]]) -> str:
    """Describe how losses differ from the float32 ones by more than rounding; empty if not."""
    want = peers.get(PEERS["float32"])
    if want is None:
        return ""
    for i, (loss, exact) in enumerate(zip(losses, want, strict=True)):
        of_peers = max(abs(peer[i] - exact) for peer in peers.values())
        allowed = max(LIMIT * exact, FACTOR * of_peers)
        if not abs(loss - exact) <= allowed:
            return f"loss {loss:.4f} at step {i}, {exact:.4f} in float32, allowed {allowed:.4f}"
    return ""
