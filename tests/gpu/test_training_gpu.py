"""Training steps on the GPU against the same steps on the CPU: losses, and the whole state after
the first step, by backend, precision and number of streams."""

from __future__ import annotations

import numpy as np
import pytest

import convoy
from convoy.training import LossModule, Network, Sgd, TrainingSession, small_resnet

from ..zoo.steps import wide_layers

pytestmark = pytest.mark.gpu

RATE, STEPS = 0.05, 6
LIMITS = {"float32": 2e-4, "tf32": 2e-2, "float16": 3e-2, "bfloat16": 2e-1}
#: Of a gradient in float32. Rounding gives 1e-5, but one rectifier whose input rounds to the other
#: side of 0 changes all gradients before it: one of 5e-7 of the others' size, 3e-3 in ``wide``.
GRADIENT_LIMIT = 1e-2


def wide(batch: int) -> LossModule:
    """Sizes at which statistics take two kernels, a max pool, groups, dilation, a large stride."""
    net = Network(batch, 63, 65, 3)
    return net.finish(wide_layers(net))


def data(net: LossModule) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    shape = [int(d) for d in net.module["main"].params[0].ty.shape.values]
    return [
        (
            rng.standard_normal(shape).astype(np.float32),
            rng.integers(0, 10, shape[0]).astype(np.int32),
        )
        for _ in range(STEPS)
    ]


def trained(net: LossModule, target: str, **options):
    step = net.step(Sgd(0.9, 1e-4))
    built = convoy.build(step.module, target, **options)
    session = TrainingSession(built, step, net.initial, RATE)
    losses, first = [], {}
    for x, labels in data(net):
        losses.append(session(x=x, labels=labels))
        first = first or session.state()  # velocities are the gradients as yet
    return losses, first, session


def errors(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> dict[str, float]:
    """Relative L2 error of each tensor. A bias in front of a norm has no gradient but rounding:
    tensors far below the mean of all count relative to that."""
    mean = np.sqrt(sum(np.sum(w**2) for w in want.values()) / sum(w.size for w in want.values()))
    return {
        name: float(
            np.linalg.norm(got[name] - w) / max(np.linalg.norm(w), 1e-2 * mean * np.sqrt(w.size))
        )
        for name, w in want.items()
    }


@pytest.fixture(scope="module")
def on_cpu():
    known: dict[str, tuple] = {}

    def get(name: str, net: LossModule):
        if name not in known:
            known[name] = trained(net, "llvm")[:2]
        return known[name]

    return get


NETWORKS = {"small": lambda: small_resnet(32, widths=(16, 32)), "wide": lambda: wide(16)}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("precision", "backends", "streams"),
    [
        ("float32", ("tvm",), 1),
        ("float32", ("cudnn", "tvm"), 1),
        ("float16", ("cudnn", "tvm"), 1),
        ("float16", ("cudnn", "tvm"), 2),
        ("bfloat16", ("cudnn", "tvm"), 1),
    ],
)
def test_steps(network, precision, backends, streams, on_cpu, records) -> None:
    net = NETWORKS[network]()
    losses, first, session = trained(
        net, "cuda", precision=precision, backends=backends, streams=streams, records=records,
        most_measured=4,
    )  # fmt: skip
    want, expected = on_cpu(network, net)
    np.testing.assert_allclose(losses, want, rtol=LIMITS[precision])
    if precision == "float32":
        found = errors(first, expected)
        assert max(found.values()) < GRADIENT_LIMIT, sorted(found.items(), key=lambda e: -e[1])[:5]
    results = session.session.num_outputs - len(session.step_info.state)
    for i, name in enumerate(session.step_info.state):  # nothing is copied between steps
        assert (
            session.session.output(results + i).data_ptr() == session.session.input(name).data_ptr()
        )
