"""Kernels that write concatenations in place against faster ones whose results are copied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.backends.base import Backend, Binary
from convoy.cost.model import CostModel
from convoy.cost.native import moving_us
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.pipeline import place

IMAGE = (8, 64, 56, 56)
DEVICE = Device()
#: Time of a copy of one part.
COPY_US = moving_us(2 * 2 * int(np.prod(IMAGE)), DEVICE)


class Compact(Backend):
    """Kernels of compact tensors."""

    name = "compact"

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate]:
        return [Candidate(self.name, "kernel")]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        raise NotImplementedError


class Sliced(Compact):
    """Kernels of slices."""

    name = "sliced"

    def sliceable(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> frozenset[str] | Decline:
        return frozenset({"x", "y"})


class Cost(CostModel):
    """10 us for compact tensors, ``lost_us`` more for slices."""

    source = "test"

    def __init__(self, lost_us: float) -> None:
        self._lost_us = lost_us

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        times = {"compact": 10.0, "sliced": 10.0 + self._lost_us}
        return [Measurement(kernel_us=times[c.backend], samples=1) for c in candidates]


def network(concat: bool) -> tvm.IRModule:
    """Two convolutions side by side, concatenated or added, and one behind them."""
    x, builder = relax.Var("x", relax.TensorType(IMAGE, "float16")), relax.BlockBuilder()
    rng = np.random.default_rng(0)

    def conv(value: relax.Expr, width: int) -> relax.Var:
        shape = (64, int(value.ty.shape[1]), width, width)
        weight = relax.const(rng.uniform(-0.1, 0.1, shape).astype("float16"))
        made = builder.emit(op.nn.conv2d(value, weight, padding=width // 2))
        return builder.emit(op.nn.relu(made))

    with builder.function("main", [x]):
        with builder.dataflow():
            stem = conv(x, 3)
            parts = [conv(stem, 1), conv(stem, 3)]
            both = builder.emit(op.concat(parts, axis=1) if concat else op.add(*parts))
            result = builder.emit_output(conv(both, 3))
        builder.emit_func_output(result)
    return builder.get()


def chosen(lost_us: float, concat: bool = True, streams: int | str = 1) -> dict[str, int]:
    placement = place(
        network(concat), precision="float16", device=DEVICE, measure=False, streams=streams,
        backends=(Compact(), Sliced()), costs=Cost(lost_us), kernels="all",
    )  # fmt: skip
    return placement.plan.backends()


@pytest.mark.parametrize("streams", [1, "auto"])
def test_kernels_are_exchanged_where_the_copy_takes_longer(streams: int | str) -> None:
    """Both parts are written in place: 2 us are lost to save the copies of both."""
    assert COPY_US > 2
    assert chosen(1.0, streams=streams) == {"compact": 2, "sliced": 2}


def test_kernels_that_lose_more_than_the_copy_takes_stay() -> None:
    assert chosen(COPY_US + 1.0) == {"compact": 4}


def test_without_a_concatenation_nothing_is_exchanged() -> None:
    assert chosen(0.1, concat=False) == {"compact": 4}
