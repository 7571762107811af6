"""Real compilations: an sm80 kernel always where there is an nvcc, an sm90 one when slow tests run.

The libraries are loaded and asked what needs no GPU: checks (which must agree with the
backend's rules) and workspace.
"""

from __future__ import annotations

import dataclasses
import subprocess

import hypothesis
import hypothesis.strategies as st
import pytest

from convoy.backends.kernels.compile import compile_kernel
from convoy.backends.kernels.cutlass import rules as rules
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.errors import InvalidWorkload
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

from ..helpers.examples import fewer
from ..helpers.kernel_abi.library import KernelLibrary, Shape

BASE = Workload("fprop", 2, 14, 14, 64, 64, 3, 3, padding=(1, 1, 1, 1))


def shape(split_k: int = 1, **changes: int) -> Shape:
    """BASE with fields changed that a workload would not allow."""
    result = Shape.of(BASE, sm_count=132, split_k=split_k)
    for name, value in changes.items():
        setattr(result, name, value)
    return result


def exported(path) -> set[str]:
    out = subprocess.run(
        ["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in out.splitlines()}


ABI = {
    f"convoy_kernel_{name}"
    for name in [
        "abi",
        "check",
        "workspace",
        "state_bytes",
        "prepare",
        "launch",
        "footprint",
        "error",
    ]
}


def test_sm80_kernel(toolkit):
    config = KernelConfig(
        "sm80_conv", (64, 64, 32), warp=(32, 32), stages=3, scheduler="splitk", affine_relu=True
    )
    entry = compile_kernel(config, toolkit=toolkit)
    assert exported(entry.path) == ABI
    library = KernelLibrary(entry.path)
    assert library.check(shape(split_k=2)) == ""
    assert "number of equal slices" in library.check(shape(split_k=1))
    assert "number of equal slices" in library.check(shape(split_k=3))
    assert "multiples" in library.check(shape(split_k=2, c=68))
    assert "output sizes" in library.check(shape(split_k=2, p=15))
    assert "another direction" in library.check(shape(split_k=2, op=2))
    assert "groups" in library.check(shape(split_k=2, groups=2))
    assert library.workspace(shape(split_k=2)) == 2 * (2 * 14 * 14) * 64 * 4
    compare_with_rules(config, library)


@pytest.mark.parametrize(
    ("align", "align_out", "out_dtype", "activation"),
    [(4, 2, "int32", "none"), (16, 4, "int8", "clip")],  # the first one is also of tests/lower
)
def test_int8_kernel(toolkit, align, align_out, out_dtype, activation):
    config = KernelConfig(
        "sm80_int8_conv", (64, 64, 128), warp=(32, 32), stages=4, align=align, align_out=align_out,
        dtype="int8", out_dtype=out_dtype, activation=activation,
    )  # fmt: skip
    entry = compile_kernel(config, toolkit=toolkit)
    assert exported(entry.path) == ABI
    library = KernelLibrary(entry.path)
    assert library.check(shape()) == "" and library.workspace(shape()) == 0
    assert "number of equal slices" in library.check(shape(split_k=2))
    assert "multiples" in library.check(shape(c=64 + align // 2))
    assert "multiples" in library.check(shape(k=64 + align_out // 2))
    assert "another direction" in library.check(shape(op=1))
    assert "groups" in library.check(shape(groups=2))
    longest = {"r": 1, "s": 1, "pad_top": 0, "pad_left": 0, "pad_bottom": 0, "pad_right": 0}
    assert library.check(shape(**longest, c=(1 << 17) - 16)) == ""
    assert "index range" in library.check(shape(**longest, c=1 << 17))


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        KernelConfig("sm90_conv", (128, 64, 64), schedule="cooperative", scheduler="streamk"),
        KernelConfig("sm90_conv", (64, 64, 64), schedule="pingpong", scheduler="splitk"),
        KernelConfig("sm90_gemm", (64, 64, 64), schedule="pingpong"),
    ],
    ids=lambda config: config.name,
)
def test_sm90_kernel(toolkit, config):
    entry = compile_kernel(config, toolkit=toolkit)
    assert exported(entry.path) == ABI
    compare_with_rules(config, KernelLibrary(entry.path))


def compare_with_rules(config: KernelConfig, library: KernelLibrary) -> None:
    """Python's rules and the library's check must say the same of any problem."""
    verdicts = set()
    epilogue = Epilogue(config.residual, False, config.activation, affine_relu=config.affine_relu)

    @hypothesis.settings(max_examples=fewer(500))
    @hypothesis.given(problems(), st.integers(1, 8))
    @hypothesis.example(BASE, 1)  # one of these is taken, whatever is drawn
    @hypothesis.example(BASE, 2)
    def agree(workload: Workload, split_k: int) -> None:
        launch = rules.Launch(config, split_k)
        theirs = library.check(shape := Shape.of(workload, 132, split_k))
        ours = rules.why_not(launch, dataclasses.replace(workload, epilogue=epilogue), Device())
        assert (ours == "") == (theirs == ""), f"{workload.key}: {ours!r}, library: {theirs!r}"
        if not ours:
            assert library.workspace(shape) <= rules.workspace_bytes(launch, workload)
        verdicts.add(ours == "")

    agree()
    assert verdicts == {True, False}, "the problems cover both answers"


@st.composite
def problems(draw) -> Workload:
    few = st.integers(0, 3)
    many = st.sampled_from([0, 1, 64, 126, 127, 128, 129, 140])
    fields = {"op": "fprop", "n": draw(st.sampled_from([1, 3, 64]))}
    fields |= {name: draw(st.integers(1, 230)) for name in ("h", "w")}
    fields["c"] = draw(st.sampled_from([4, 6, 8, 24, 36, 64, 128, 256, 512, 1000]))
    fields["k"] = draw(st.sampled_from([4, 6, 8, 40, 64, 100]))
    if draw(st.booleans()):
        return Workload(**fields, r=1, s=1)
    fields |= {name: draw(st.sampled_from([1, 2, 3, 7, 33, 128, 130])) for name in ("r", "s")}
    padding = tuple(draw(st.lists(few | many, min_size=4, max_size=4)))
    pair = st.tuples(st.integers(1, 9), st.integers(1, 9))
    fields |= {"padding": padding, "stride": draw(pair), "dilation": draw(pair)}
    try:
        return Workload(**fields)
    except InvalidWorkload:
        return Workload(**fields | {"dilation": (1, 1), "h": 230, "w": 230})
