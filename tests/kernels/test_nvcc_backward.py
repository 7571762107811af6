"""Real compilations of gradient kernels: the library accepts exactly what Python's rules accept.

sm80 kernels always where there is an nvcc (10 s each), sm90 ones with --slow. No GPU needed.
"""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest

from convoy.backends.kernels.compile import compile_kernel
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.cutlass.family import rules_of
from convoy.backends.kernels.cutlass.rules import Launch
from convoy.errors import InvalidWorkload
from convoy.ir.device import Device
from convoy.ir.workload import Workload

from ..helpers.examples import fewer
from ..helpers.kernel_abi.library import KernelLibrary, Shape

SM80 = {"tile": (64, 64, 64), "warp": (32, 32), "stages": 4}
SM90 = {"tile": (64, 64, 64), "schedule": "pingpong"}
KERNELS = [
    pytest.param(KernelConfig("sm80_dgrad", **SM80, align=4)),
    pytest.param(KernelConfig("sm80_strided_dgrad", **SM80)),
    pytest.param(KernelConfig("sm80_wgrad", **SM80, scheduler="splitk", align_out=4)),
    pytest.param(KernelConfig("sm90_dgrad", **SM90), marks=pytest.mark.slow),
    pytest.param(KernelConfig("sm90_dgrad_gemm", **SM90), marks=pytest.mark.slow),
    pytest.param(KernelConfig("sm90_wgrad", **SM90, scheduler="splitk"), marks=pytest.mark.slow),
]


@st.composite
def workloads(draw, op: str) -> Workload:
    filter_size = draw(st.sampled_from([(1, 1), (3, 3), (2, 5)]))
    fields = {
        "n": draw(st.sampled_from([1, 3, 8])),
        "h": draw(st.integers(1, 40)),
        "w": draw(st.integers(1, 40)),
        "c": draw(st.sampled_from([7, 8, 24, 36, 38, 136])),
        "k": draw(st.sampled_from([9, 8, 40, 42, 44, 200])),
        "r": filter_size[0],
        "s": filter_size[1],
        "stride": draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (2, 1), (9, 2)])),
        "padding": tuple(draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))),
        "dilation": draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3)])),
    }
    try:
        return Workload(op, **fields)
    except InvalidWorkload:
        return Workload(op, **fields | {"h": 40, "w": 40})


@pytest.mark.parametrize("config", KERNELS, ids=lambda config: config.name)
def test_library_and_rules_agree(toolkit, config):
    library = KernelLibrary(compile_kernel(config, toolkit=toolkit).path)
    device = Device()

    @hypothesis.given(workloads(config.op), st.sampled_from([1, 2, 3, 12]))
    @hypothesis.settings(max_examples=fewer(150), deadline=None)
    def agree(workload, split):
        split = split if config.scheduler == "splitk" else 1
        rules, launch = rules_of(workload), Launch(config, split)
        mine = rules.why_not(launch, workload, device)
        shape = Shape.of(workload, device.sm_count, split)
        its = library.check(shape)
        assert bool(mine) == bool(its), (workload.key, split, mine, its)
        if not its:
            assert library.workspace(shape) <= rules.workspace_bytes(launch, workload)

    agree()
