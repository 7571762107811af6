"""Squeeze-and-excitation blocks in one kernel: against float64, with guards around the result,
launched plainly and programmatically, behind each other and in networks."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from convoy.backends.kernels.sm90.squeeze_excite import CHOICES, CHOSEN, SqueezeExciteKernel
from convoy.backends.kernels.sm90.squeeze_excite_clusters import CLUSTERS, MOST_SHARED, cluster_of
from convoy.ir.device import Device
from convoy.ir.squeeze_excite import squeeze_and_excite

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
from ..helpers.kernel_abi.squeeze_excite import (
    Operands,
    Problem,
    SqueezeExciteLibrary,
)
from ..helpers.kernel_accuracy import loaded
from ..sm90.squeeze_excite_cases import made, taken_cases, usual

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("squeeze_excite")]
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

THREADS = 512


def workloads():
    """Those of networks; of each number of channels with each size; of each number of images; of
    each number of squeezed channels; of more clusters than the device runs at a time."""
    found = [*usual("float16"), *usual("bfloat16"), *taken_cases(120, 11)]
    channels = (8, 24, 32, 96, 144, 480, 672, 1152, 2400)
    sizes = (1, 7, 14, 28, (33, 17), 112)
    for c, size in itertools.product(channels, sizes):
        if size != 112 or c <= 144:
            found.append(made(2, size, c, 8 if c < 480 else 20, "silu"))
    for c, n in itertools.product(channels, (1, 2, 3, 8, 20)):
        found.append(made(n, 7, c, 20, y="relu", residual=True, dtype=DTYPES[n % 2]))
    for c, squeezed in itertools.product(channels, (1, 4, 6, 8, 20, 48, 64, 200)):
        found.append(made(2, 14, c, squeezed, "hardswish", "clip"))
    found += [made(300, 9, c, 8, "silu", dtype=dtype) for c in (32, 480) for dtype in DTYPES]
    found += [made(2, 3, 8192, 512), made(1, (1, 200), 64, 2000), made(1, 240, 16, 8)]
    return [w for w in dict.fromkeys(found) if BACKEND.accepts(w, Device()) is None]


def kernels(parameters=(), device=None):
    """What the tests run, whichever of them are selected."""
    return {SqueezeExciteKernel(dtype) for dtype in DTYPES}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    found = loaded(kernels(), SqueezeExciteLibrary, tmp_path_factory.mktemp("libraries"))
    return {kernel.dtype: library for kernel, library in found.items()}


def random_operands(w, device="cuda"):
    """Random operands, with which the sums of both products are about 1, and channels differ."""
    scales = {"squeeze": w.c**-0.5, "excite": w.squeeze_excite.channels**-0.5}
    found = scaled_operands(w, scales, device)
    found["x"] += torch.randn(w.n, 1, 1, w.c, device=device).to(found["x"].dtype)  # their means
    return found


def reference(w, given):
    """The result in float64; the means and the results of both products are rounded."""
    exact = {name: tensor.double() for name, tensor in given.items()}
    dtype = getattr(torch, w.dtype)
    values = exact["x"].mean((1, 2)).to(dtype).double()
    for part, name in zip(squeeze_and_excite(w), ("squeeze", "excite"), strict=True):
        sums = values @ exact[name].T + exact.get(f"{name}_bias", 0.0)
        values = activate(part.epilogue, sums).to(dtype).double()
    y = exact["x"] * values[:, None, None] + exact.get("residual", 0.0)
    return {"y": activate(w.epilogue, y)}


class Run(GuardedRun):
    problem, operands = Problem, Operands


def check_all(libraries, w, sm_counts=(132,)):
    check_launches(Run(libraries[w.dtype], w), random_operands, reference, sm_counts)


@pytest.mark.parametrize("w", workloads(), ids=lambda w: w.key)
def test_launches_against_float64(libraries, w):
    check_all(libraries, w)


@pytest.mark.parametrize("residual", [True, False], ids=["residual", "none"])
@pytest.mark.parametrize("biases", itertools.product((True, False), repeat=2), ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations(libraries, dtype, biases, residual):
    """Each of the first product with each of the gates and of the result."""
    for squeeze, gate, y in itertools.product(*CHOSEN):
        w = made(2, 7, 40, 6, squeeze, gate, y, residual, biases, dtype)
        check_all(libraries, w)


@pytest.mark.parametrize("w", [*usual(), *taken_cases(12, 2)], ids=lambda w: w.key)
def test_reference_is_that_of_measurements(w):
    w = dataclasses.replace(w, n=min(w.n, 2), h=min(w.h, 9), w=min(w.w, 9))
    given = random_operands(w)
    check_reference(w, given, reference(w, given), 0.2)


@pytest.mark.parametrize("w", [*usual(), *taken_cases(20, 4)], ids=lambda w: w.key)
def test_footprints_are_those_of_the_rules(libraries, w):
    run = Run(libraries[w.dtype], w)
    for swizzle in swizzles(w):
        blocks = CLUSTERS[swizzle // CHOICES]
        footprint = run.prepared(swizzle).footprint()
        assert cluster_of(w, blocks).shared_bytes <= footprint.shared_bytes
        assert footprint.shared_bytes <= MOST_SHARED + 1024, "with what CUDA counts"
        assert footprint.threads_per_block == THREADS
        assert footprint.blocks == w.n * blocks


@pytest.mark.parametrize("y", CHOSEN[2])
@pytest.mark.parametrize("gate", CHOSEN[1])
def test_nan_of_an_image_stays_in_it(libraries, gate, y):
    """It is in all channels of the image, as the mean of one reaches all gates; that of a residual
    is in one element."""
    w = made(5, 9, 96, 8, "silu", gate, y, True)
    given = random_operands(w)
    given["x"][1, 3, 4, 5] = torch.nan
    given["residual"][3, 2, 1, 17] = torch.nan
    wanted = reference(w, given)
    want = wanted["y"]
    assert want[1].isnan().all() and want.isnan().sum() == want[1].numel() + 1
    check_nan(Run(libraries[w.dtype], w), given, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_behind_each_other(libraries, dtype):
    """Each reads what the one before it wrote, which lets it start at once; the residual is what
    that one read."""
    torch.manual_seed(1)
    runs = []
    for squeezed in (8, 20, 4, 48, 8, 200):
        w = made(8, 28, 96, squeezed, "silu", "sigmoid", "none", True, dtype=dtype)
        run = Run(libraries[dtype], w)
        run.set(random_operands(w))
        if runs:
            run.tensors["x"], run.tensors["residual"] = runs[-1].out["y"], runs[-1].tensors["x"]
        runs.append(run)
    check_chain(runs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("wide", "squeezed"), [(96, 8), (480, 20), (32, 4)])
def test_networks(libraries, wide, squeezed, dtype):
    """Once compiled, the kernel is one of those that networks use."""
    from ..helpers.gated_networks import network

    blocks = compile_and_check(network(wide, squeezed), dtype, lambda w: w.op == "squeeze_excite")
    assert [w.epilogue.name for w in blocks] == ["", "", "residual_relu"]
    assert all(w.c == wide for w in blocks)
