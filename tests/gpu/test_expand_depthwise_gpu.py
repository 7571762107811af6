"""1x1 convolutions with depthwise ones behind them in one kernel: against float64, with guards
around all operands, launched plainly and programmatically, behind each other and in networks."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from convoy.backends.kernels.sm90 import expand_tiles
from convoy.backends.kernels.sm90.expand_depthwise import CHOSEN, ExpandDepthwiseKernel
from convoy.backends.kernels.sm90.expand_tiles import LIMITS
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion

from ..helpers.guarded_runs import (
    DTYPES,
    GuardedRun,
    activate,
    check_chain,
    check_launches,
    check_nan,
    check_reference,
    scaled_operands,
    swizzles,
)
from ..helpers.joint_networks import compile_and_check
from ..helpers.kernel_abi.expansion import ExpansionLibrary, Operands, Problem
from ..helpers.kernel_accuracy import convolved, loaded
from ..sm90.expansion_cases import taken_cases, usual

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("expand_depthwise")]
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def workloads():
    return [*usual("float16"), *usual("bfloat16"), *taken_cases(150, 11)]


def kernels(parameters=(), device=None):
    """What the tests run, whichever of them are selected."""
    return {ExpandDepthwiseKernel(dtype) for dtype in DTYPES}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    found = loaded(kernels(), ExpansionLibrary, tmp_path_factory.mktemp("libraries"))
    return {kernel.dtype: library for kernel, library in found.items()}


def random_operands(w, device="cuda"):
    """Random operands, with which all tensors have values of about 1."""
    scales = {"expand": w.expansion.channels**-0.5, "w": w.taps**-0.5}
    return scaled_operands(w, scales, device)


def reference(w, given):
    """The result in float64, (n, p, q, k); the tensor between the convolutions is rounded."""
    exact = {name: tensor.double() for name, tensor in given.items()}
    e = w.expansion.epilogue
    wide = exact["x"] @ exact["expand"].T + exact.get("expand_bias", 0.0)
    wide = activate(e, wide).to(getattr(torch, w.dtype)).double()
    y = activate(w.epilogue, convolved(w, wide, exact["w"]) + exact.get("bias", 0.0))
    return {"y": y}


class Run(GuardedRun):
    problem, operands = Problem, Operands


def check_all(libraries, w, sm_counts=(132, 4)):
    check_launches(Run(libraries[w.dtype], w), random_operands, reference, sm_counts)


@pytest.mark.parametrize("w", workloads(), ids=lambda w: w.key)
def test_launches_against_float64(libraries, w):
    check_all(libraries, w)


@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "none"])
@pytest.mark.parametrize("activation", CHOSEN)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations(libraries, dtype, activation, has_bias):
    """Each of both convolutions with each of the other one."""
    base = next(usual(dtype))
    for other in CHOSEN:
        depthwise, expand = (
            Epilogue(bias=has_bias, activation=a, clip_max=0.75 if a == "clip" else 0.0)
            for a in (activation, other)
        )
        w = dataclasses.replace(
            base, n=2, h=11, w=13, epilogue=depthwise, expansion=Expansion(40, expand)
        )
        check_all(libraries, w, (132,))


@pytest.mark.parametrize("w", [*taken_cases(12, 2)], ids=lambda w: w.key)
def test_reference_is_that_of_measurements(w):
    w = dataclasses.replace(w, n=1, h=min(w.h, 9), w=min(w.w, 9))
    given = random_operands(w)
    check_reference(w, given, reference(w, given), 0.1)


@pytest.mark.parametrize("w", [*usual(), *taken_cases(20, 4)], ids=lambda w: w.key)
def test_footprints_are_those_of_the_tiles(libraries, w):
    run = Run(libraries[w.dtype], w)
    for swizzle in swizzles(w):
        limit = LIMITS[swizzle // len(CHOSEN) ** 2]
        tile = expand_tiles.tile_of(w, limit, Device())
        footprint = run.prepared(swizzle).footprint()
        own = footprint.shared_bytes - expand_tiles.shared_bytes(w, limit.columns, tile.groups)
        assert own in (0, 1024), "beside what CUDA may count for itself"
        assert footprint.threads_per_block == 128
        blocks = -(-w.k // limit.columns)
        assert footprint.blocks % blocks == 0 and footprint.blocks <= tile.count(w)


@pytest.mark.parametrize("activation", ["none", "relu", "silu"])
def test_nan_is_kept_and_stays_where_it_is(libraries, activation):
    """What lies outside of the image is zero, whatever memory holds."""
    epilogue = Epilogue(bias=True, activation=activation)
    w = dataclasses.replace(next(usual()), epilogue=epilogue, expansion=Expansion(16, epilogue))
    given = random_operands(w)
    for place in ((0, 0, 0), (0, 20, 31), (0, 55, 55)):
        given["x"][place] = torch.nan
    check_nan(Run(libraries[w.dtype], w), given, reference(w, given))


@pytest.mark.parametrize("dtype", DTYPES)
def test_behind_each_other(libraries, dtype):
    """Each reads what the one before it wrote, which lets it start at once."""
    torch.manual_seed(1)
    epilogue, widths = Epilogue(bias=True, activation="relu"), (16, 96, 40, 200, 64, 16)
    runs = []
    for i, (narrow, k) in enumerate(itertools.pairwise(widths)):
        taps = 3 if i % 2 else 5
        w = dataclasses.replace(
            next(usual(dtype)), n=8, h=28, w=28, c=k, k=k, groups=k, r=taps, s=taps,
            stride=(1, 1), padding=(taps // 2,) * 4, epilogue=epilogue,
            expansion=Expansion(narrow, epilogue),
        )  # fmt: skip
        run = Run(libraries[dtype], w)
        run.set(random_operands(w))
        if runs:
            run.tensors["x"] = runs[-1].out["y"]
        runs.append(run)
    check_chain(runs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mobilenet_v2", "efficientnet", "mobilenet_v3"])
def test_networks(libraries, kind, dtype):
    """Once compiled, the kernel is one of those that networks use."""
    from ..helpers.inverted_residuals import network

    joint = compile_and_check(network(kind), dtype, lambda w: w.expansion is not None)
    assert [w.expansion.channels for w in joint] == [16, 24]
    assert all(w.epilogue.activation == w.expansion.epilogue.activation for w in joint)
