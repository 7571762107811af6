"""Bottlenecks in one kernel: against float64, with guards around all operands, launched plainly and
programmatically, behind each other and in networks."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from convoy.backends.kernels.sm90 import bottleneck_blocks
from convoy.backends.kernels.sm90.bottleneck import CHOSEN, BottleneckKernel
from convoy.backends.kernels.sm90.bottleneck_blocks import BLOCKS, TILE
from convoy.ir.bottleneck import Bottleneck, parts
from convoy.ir.device import Device
from convoy.ir.epilogue import NO_EPILOGUE, Epilogue
from convoy.ir.workload import Workload

from ..helpers.guarded_runs import (
    BACKEND,
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
from ..helpers.kernel_abi.bottleneck import BottleneckLibrary, Operands, Problem
from ..helpers.kernel_accuracy import convolved, loaded
from ..sm90.bottleneck_cases import taken_cases, usual

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("bottleneck")]
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

RELU = Epilogue(bias=True, activation="relu")
ADDED = dataclasses.replace(RELU, residual=True)


def made(n, size, c, k, expand, reduce=0, taps=3, residual=True, dtype="float16", **fields):
    """A bottleneck with biases and ReLU, padded to keep the size."""
    r, s = (taps, taps) if isinstance(taps, int) else taps
    third = RELU if reduce else NO_EPILOGUE
    own = Bottleneck(expand, ADDED if residual else RELU, reduce, third)
    base = Workload(
        "bottleneck", n, size, size, c, k, r, s, padding=(r // 2, s // 2) * 2, dtype=dtype,
        out_dtype=dtype, epilogue=RELU, bottleneck=own,
    )  # fmt: skip
    return dataclasses.replace(base, **fields)


def workloads():
    """Those of networks; of each number of channels; of each filter; of several tiles per block."""
    found = [*usual("float16"), *usual("bfloat16"), *taken_cases(150, 11)]
    for c, k in itertools.product((8, 16, 24, 40, 64, 72, 128), (8, 32, 64, 72, 128)):
        taps = 3 if c * k <= 64 * 64 else (1, 3)
        found += [made(2, 11, c, k, 64, 24, taps), made(1, 9, c, k, 72, 0, taps, False)]
    for expand, reduce in itertools.product((64, 72, 200, 256), (0, 24, 64, 128)):
        found += [made(2, 13, 32, 40, expand, reduce, dtype=dtype) for dtype in DTYPES]
    for taps in ((1, 3), (3, 1), 5, 2):
        found += [made(1, 21, 16, 24, 72, 24, taps), made(2, 10, 16, 24, 72, 0, taps, False)]
    around = {"dilation": (2, 2), "padding": (2,) * 4}
    found += [made(2, 17, 32, 32, 128, 32, **around), made(1, 8, 24, 64, 64, 0, **around)]
    bare = {"padding": (0,) * 4}
    found += [made(2, 18, 64, 64, 256, 64, **bare), made(1, 10, 64, 64, 256, 0, **bare)]
    found += [made(40, 24, 64, 64, 256, 64, dtype=dtype) for dtype in DTYPES]
    found += [made(48, 28, 32, 32, 128, 0, residual=False), made(300, 7, 64, 64, 256, 64)]
    return [w for w in dict.fromkeys(found) if BACKEND.accepts(w, Device()) is None]


def kernels(parameters=(), device=None):
    """What the tests run, whichever of them are selected."""
    return {BottleneckKernel(dtype) for dtype in DTYPES}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    found = loaded(kernels(), BottleneckLibrary, tmp_path_factory.mktemp("libraries"))
    return {kernel.dtype: library for kernel, library in found.items()}


def random_operands(w, device="cuda"):
    """Random operands, with which all tensors have values of about 1."""
    lengths = {"w": w.taps * w.c, "expand": w.k, "reduce": w.bottleneck.expand}
    scales = {name: length**-0.5 for name, length in lengths.items()}
    return scaled_operands(w, scales, device)


def reference(w, given):
    """The results in float64; each that the next convolution reads is rounded first."""
    exact = {name: tensor.double() for name, tensor in given.items()}
    rounded = getattr(torch, w.dtype)
    first, second, *third = parts(w)
    middle = convolved(first, exact["x"], exact["w"]) + exact.get("bias", 0.0)
    middle = activate(first.epilogue, middle).to(rounded).double()
    y = middle @ exact["expand"].T + exact.get("expand_bias", 0.0) + exact.get("residual", 0.0)
    results = {"y": activate(second.epilogue, y)}
    for part in third:
        z = results["y"].to(rounded).double() @ exact["reduce"].T + exact.get("reduce_bias", 0.0)
        results["z"] = activate(part.epilogue, z)
    return results


class Run(GuardedRun):
    problem, operands = Problem, Operands


def check_all(libraries, w, sm_counts=(132, 4)):
    check_launches(Run(libraries[w.dtype], w), random_operands, reference, sm_counts)


@pytest.mark.parametrize("w", workloads(), ids=lambda w: w.key)
def test_launches_against_float64(libraries, w):
    check_all(libraries, w)


@pytest.mark.parametrize("residual", [True, False], ids=["residual", "none"])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "none"])
@pytest.mark.parametrize("activation", CHOSEN)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations(libraries, dtype, activation, has_bias, residual):
    """Each of the first convolution with each of the others."""

    def epilogue(name):
        return Epilogue(bias=has_bias, activation=name, clip_max=0.75 if name == "clip" else 0.0)

    for second, third in itertools.product(CHOSEN, repeat=2):
        wide = dataclasses.replace(epilogue(second), residual=residual)
        own = Bottleneck(72, wide, 24, epilogue(third))
        fields = {"epilogue": epilogue(activation), "bottleneck": own}
        check_all(libraries, made(2, 11, 24, 32, 72, 24, dtype=dtype, **fields), (132,))


@pytest.mark.parametrize("which", itertools.product((True, False), repeat=3), ids=str)
def test_some_biases(libraries, which):
    first, second, third = (dataclasses.replace(RELU, bias=bias) for bias in which)
    own = Bottleneck(72, dataclasses.replace(second, residual=True), 24, third)
    w = made(2, 11, 24, 32, 72, 24, epilogue=first, bottleneck=own)
    check_all(libraries, w, (132,))


@pytest.mark.parametrize("w", [*taken_cases(12, 2)], ids=lambda w: w.key)
def test_reference_is_that_of_measurements(w):
    w = dataclasses.replace(w, n=1, h=min(w.h, 9), w=min(w.w, 9))
    given = random_operands(w)
    check_reference(w, given, reference(w, given), 0.2)


@pytest.mark.parametrize("w", [*usual(), *taken_cases(20, 4)], ids=lambda w: w.key)
def test_footprints_are_those_of_the_rules(libraries, w):
    run = Run(libraries[w.dtype], w)
    tiles = w.n * -(-w.p // TILE) * -(-w.q // TILE)
    for swizzle in swizzles(w):
        block = BLOCKS[swizzle // len(CHOSEN) ** 3]
        footprint = run.prepared(swizzle).footprint()
        assert block.shared_bytes(w) <= footprint.shared_bytes
        assert footprint.shared_bytes <= bottleneck_blocks.MOST_SHARED + 1024, (
            "with what CUDA counts"
        )
        assert footprint.threads_per_block > 128 * block.groups
        assert footprint.blocks <= min(tiles, 132)


@pytest.mark.parametrize("activation", CHOSEN)
def test_nan_is_kept_and_stays_where_it_is(libraries, activation):
    """What lies outside of the image is zero, whatever memory holds."""
    high = 6.0 if activation == "clip" else 0.0
    epilogue = Epilogue(bias=True, activation=activation, clip_max=high)
    own = Bottleneck(256, dataclasses.replace(epilogue, residual=True), 64, epilogue)
    w = dataclasses.replace(next(usual()), epilogue=epilogue, bottleneck=own)
    given = random_operands(w)
    for place in ((0, 0, 0), (0, 20, 31), (0, 55, 55)):
        given["x"][place] = torch.nan
    for place in ((0, 7, 8, 0), (0, 40, 3, 255), (0, 55, 0, 100)):
        given["residual"][place] = torch.nan
    wanted = reference(w, given)
    assert [bool(wanted["y"][0, 7, 8, k].isnan()) for k in (0, 1)] == [True, False]
    check_nan(Run(libraries[w.dtype], w), given, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_behind_each_other(libraries, dtype):
    """Each reads what the one before it wrote, which lets it start at once; the residual is the
    wide tensor of the one before."""
    torch.manual_seed(1)
    runs = []
    for c, reduce in [(64, 64), (64, 32), (32, 64), (64, 64), (64, 0)]:
        w = made(8, 28, c, c, 256, reduce, dtype=dtype)
        run = Run(libraries[dtype], w)
        run.set(random_operands(w))
        if runs:
            run.tensors["x"], run.tensors["residual"] = runs[-1].out["z"], runs[-1].out["y"]
        runs.append(run)
    check_chain(runs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("narrow", "wide"), [(64, 256), (32, 128), (48, 192)])
def test_networks(libraries, narrow, wide, dtype):
    """Once compiled, the kernel is one of those that networks use."""
    from ..helpers.residual_networks import network

    found = compile_and_check(network(narrow, wide), dtype, lambda w: w.is_back_to_back)
    joint = [w.bottleneck for w in found if w.bottleneck]
    assert [own.reduce for own in joint] == [narrow, narrow, 0]
    assert all(own.expand == wide and own.expand_epilogue == ADDED for own in joint)
