"""Each operator of Relax as compiled for a GPU, its kernels run on the CPU, against LLVM."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import convoy
from convoy.ir.device import Device

from ..graph.operators import all_operators, check_equal, together
from ..lower.test_operators import REFUSED, RESCHEDULED
from .network import Emulation

#: TVM's kernels of scans read what other threads of a warp are about to write, without a barrier:
#: right where a warp's threads load together, and tests/gpu runs them.
LOCKSTEP = ("cumsum", "cumprod")
OPERATORS = [
    case
    for name, case in all_operators().items()
    if name not in REFUSED and not name.startswith(LOCKSTEP)
]
#: Operators compiled together: most of the time goes into CUDA's headers.
GROUP = 30
#: Where one kernel does not compile, the build compiles each alone to find it.
OTHERS = [case for case in OPERATORS if case.name not in RESCHEDULED]
GROUPS = [
    [case for case in OPERATORS if case.name in RESCHEDULED],
    *(OTHERS[first : first + GROUP] for first in range(0, len(OTHERS), GROUP)),
]


@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_operators(group: int) -> None:
    cases = GROUPS[group]
    module, owners = together(cases)
    inputs = [array for case in cases for array in case.arrays()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # simpler schedules: tests/lower has which
        placed = convoy.place(
            module, precision="float32", backends=("tvm",), device=Device(), measure=False
        )
        results = Emulation(placed, 1)(*inputs, seed=group)
    expected = convoy.build(module, "llvm", precision="float32").session()(*inputs)
    for case, got, want in zip(owners, results, expected, strict=True):
        try:
            check_equal([got], [np.array(want)], case.half)
        except AssertionError as err:
            raise AssertionError(f"{case.name}: {err}") from None
