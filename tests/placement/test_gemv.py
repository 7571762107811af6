"""Products of a few rows are left to TVM's kernel where that is estimated to be faster."""

from __future__ import annotations

import dataclasses

import pytest
from tvm import relax

from convoy.cost import native
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.partition.match_graph import Subgraph

LINEAR = Workload("matmul", 1, 1, 1, 512, 1000, 1, 1)


def subgraph(workload: Workload, **others: object) -> Subgraph:
    x, w = (relax.Var(name, relax.TensorType((1, 1), "float16")) for name in "xw")
    weights = relax.const(0.0, "float16")
    fields = {"inputs": (x, weights), "outputs": ("y",)} | others
    if fields["inputs"] == "variable":
        fields["inputs"] = (x, w)
    return Subgraph("s", ("y",), workload=workload, **fields)


def test_the_matrix_is_read_once_for_each_row() -> None:
    device = Device()
    one, four = (
        native.native_us(subgraph(dataclasses.replace(LINEAR, n=n)), device) for n in (1, 4)
    )
    read = 512 * 1000 * 2 / device.memory_bandwidth / native.ELEMENTWISE_EFFICIENCY * 1e6
    assert one == pytest.approx(native.SMALLEST_KERNEL_US + read)
    assert four == pytest.approx(one + 3 * read)


@pytest.mark.parametrize(
    "workload",
    [
        dataclasses.replace(LINEAR, n=native.MOST_GEMV_ROWS + 1),
        dataclasses.replace(LINEAR, c=510),  # threads do not share the sum evenly
        Workload("fprop", 1, 8, 8, 64, 64, 1, 1),
        Workload("fprop", 1, 3, 3, 64, 64, 3, 3, padding=(1, 1, 1, 1)),
        Workload("fprop", 1, 1, 1, 64, 64, 1, 1, groups=2),
        Workload("wgrad", 1, 1, 1, 64, 64, 1, 1),
    ],
)
def test_others_are_for_libraries(workload: Workload) -> None:
    assert native.native_us(subgraph(workload), Device()) is None


def test_weights_that_are_computed_are_for_libraries() -> None:
    assert native.native_us(subgraph(LINEAR, inputs="variable"), Device()) is None
    assert native.native_us(subgraph(LINEAR, outputs=("y", "z")), Device()) is None
