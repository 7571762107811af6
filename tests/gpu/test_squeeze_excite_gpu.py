"""Squeeze-and-excitation blocks in one kernel: against float64, with guards around the result,
launched plainly and programmatically, behind each other and in networks."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import itertools
import zlib

import numpy as np
import pytest

import convoy
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.squeeze_excite import CHOICES, CHOSEN, SqueezeExciteKernel
from convoy.backends.kernels.sm90.squeeze_excite_clusters import CLUSTERS, MOST_SHARED, cluster_of
from convoy.backends.kernels.sm90.squeeze_excite_problem import (
    Operands,
    Problem,
    SqueezeExciteLibrary,
)
from convoy.cost.model import CostModel
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.squeeze_excite import products
from convoy.measure.reference import full

from ..helpers.kernel_accuracy import loaded
from ..sm90.squeeze_excite_cases import made, taken_cases, usual

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("squeeze_excite")]
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BACKEND = sm90_backend()
DTYPES = ("float16", "bfloat16")
#: Of the whole result; an element may be wrong by MOST times as much of 1 + its size.
TOLERANCE, MOST = {"float16": 1e-3, "bfloat16": 8e-3}, 20
#: Of networks.
LIMIT = {"float16": 6e-3, "bfloat16": 5e-2}
GUARD = 2048
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
    found = {
        name: (torch.randn(*size, device=device) * scales.get(name, 1.0)).to(getattr(torch, dtype))
        for name, size, dtype in w.operand_shapes()[:-1]
    }
    found["x"] += torch.randn(w.n, 1, 1, w.c, device=device).to(found["x"].dtype)  # their means
    return found


def activate(epilogue, y):
    bounds = epilogue.clip_min, epilogue.clip_max
    functions = {
        "none": lambda y: y,
        "relu": torch.relu,
        "clip": lambda y: y.clamp(*bounds),
        "sigmoid": torch.sigmoid,
        "silu": torch.nn.functional.silu,
        "hardswish": torch.nn.functional.hardswish,
        "gelu": torch.nn.functional.gelu,
    }
    return functions[epilogue.activation](y)


def reference(w, given):
    """The result in float64; the means and the results of both products are rounded."""
    exact = {name: tensor.double() for name, tensor in given.items()}
    dtype = getattr(torch, w.dtype)
    values = exact["x"].mean((1, 2)).to(dtype).double()
    for part, name in zip(products(w), ("squeeze", "excite"), strict=True):
        sums = values @ exact[name].T + exact.get(f"{name}_bias", 0.0)
        values = activate(part.epilogue, sums).to(dtype).double()
    y = exact["x"] * values[:, None, None] + exact.get("residual", 0.0)
    return activate(w.epilogue, y)


def guarded(size, dtype):
    """A tensor of NaN between others."""
    count = int(np.prod(size))
    whole = torch.full((count + 2 * GUARD,), torch.nan, device="cuda", dtype=getattr(torch, dtype))
    return whole, whole[GUARD:-GUARD].view(size)


class Run:
    """A workload's operands in memory, and its library's launches of them."""

    def __init__(self, library, w):
        self.library, self.w = library, w
        pairs = {name: guarded(size, dtype) for name, size, dtype in w.operand_shapes()}
        self.tensors = {name: tensor for name, (_, tensor) in pairs.items()}
        self.whole, self.out = pairs["y"]

    def set(self, given):
        for name, tensor in given.items():
            self.tensors[name].copy_(tensor)
        self.clear()
        torch.cuda.synchronize()

    def clear(self):
        self.whole.fill_(torch.nan)

    def prepared(self, swizzle):
        addresses = {name: tensor.data_ptr() for name, tensor in self.tensors.items()}
        return self.library.prepare(Problem.of(self.w, 132, swizzle), Operands(**addresses))

    def launches(self, swizzle):
        """Plain, and programmatic: with weights that may be read early, and with others."""
        prepared = self.prepared(swizzle)
        return [prepared.launch, *(programmatic(self.library, prepared, c) for c in (1, 0))]

    def check(self, want, what):
        torch.cuda.synchronize()
        guards = torch.cat([self.whole[:GUARD], self.whole[-GUARD:]])
        assert guards.isnan().all(), (what, "writes beyond its result")
        got, limit = self.out.double(), TOLERANCE[self.w.dtype]
        error = float((got - want).norm() / want.norm().clamp_min(0.1 * want.numel() ** 0.5))
        worst = float(((got - want).abs() / (1 + want.abs())).max())
        assert error < limit and worst < MOST * limit, (what, error, worst)


def programmatic(library, prepared, constant_weights):
    """A launch that may start before its predecessor has ended."""

    def launch(stream):
        stream = ctypes.c_void_p(stream)
        library.call("launch_programmatic", prepared._state, stream, constant_weights)

    return launch


def swizzles(w):
    found = BACKEND.propose(w, Device())
    return [BACKEND.launch_of(candidate).swizzle for candidate in found]


def check_launches(library, w):
    """All launches of a workload with every cluster, each with other operands than the one before
    it."""
    torch.manual_seed(zlib.crc32(w.key.encode()))
    sets = [random_operands(w) for _ in range(2)]
    wanted = [reference(w, given) for given in sets]
    run, stream = Run(library, w), torch.cuda.current_stream().cuda_stream
    count = 0
    for swizzle in swizzles(w):
        for i, launch in enumerate(run.launches(swizzle)):
            run.set(sets[count % 2])
            launch(stream)
            run.check(wanted[count % 2], (CLUSTERS[swizzle // CHOICES], i))
            count += 1
    assert count


@pytest.mark.parametrize("w", workloads(), ids=lambda w: w.key)
def test_launches_against_float64(libraries, w):
    check_launches(libraries[w.dtype], w)


@pytest.mark.parametrize("residual", [True, False], ids=["residual", "none"])
@pytest.mark.parametrize("biases", itertools.product((True, False), repeat=2), ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations(libraries, dtype, biases, residual):
    """Each of the first product with each of the gates and of the result."""
    for squeeze, gate, y in itertools.product(*CHOSEN):
        w = made(2, 7, 40, 6, squeeze, gate, y, residual, biases, dtype)
        check_launches(libraries[dtype], w)


@pytest.mark.parametrize("w", [*usual(), *taken_cases(12, 2)], ids=lambda w: w.key)
def test_reference_is_that_of_measurements(w):
    w = dataclasses.replace(w, n=min(w.n, 2), h=min(w.h, 9), w=min(w.w, 9))
    given = random_operands(w)
    (want,) = full(w, {name: tensor.double().cpu().numpy() for name, tensor in given.items()})
    # Where sums in another order are rounded to another number.
    error = np.linalg.norm(reference(w, given).cpu().numpy() - want)
    assert error <= 0.2 * TOLERANCE[w.dtype] * np.linalg.norm(want)


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
    want = reference(w, given)
    assert want[1].isnan().all() and want.isnan().sum() == want[1].numel() + 1
    run, stream = Run(libraries[w.dtype], w), torch.cuda.current_stream().cuda_stream
    for swizzle in swizzles(w):
        run.set(given)
        run.prepared(swizzle).launch(stream)
        torch.cuda.synchronize()
        assert torch.equal(run.out.isnan(), want.isnan())


@pytest.mark.parametrize("dtype", DTYPES)
def test_behind_each_other(libraries, dtype):
    """Each reads what the one before it wrote, which lets it start at once; the residual is what
    that one read."""
    torch.manual_seed(1)
    stream, runs, launches = torch.cuda.current_stream().cuda_stream, [], []
    for i, squeezed in enumerate((8, 20, 4, 48, 8, 200)):
        w = made(8, 28, 96, squeezed, "silu", "sigmoid", "none", True, dtype=dtype)
        run = Run(libraries[dtype], w)
        run.set(random_operands(w))
        if runs:
            run.tensors["x"], run.tensors["residual"] = runs[-1].out, runs[-1].tensors["x"]
        runs.append(run)
        found = swizzles(w)
        launches.append(run.launches(found[i % len(found)]))

    def results(kind):
        for run in runs:
            run.clear()
        for each in launches:
            each[kind](stream)
        torch.cuda.synchronize()
        return [run.out.clone() for run in runs]

    for _ in range(20):
        runs[0].tensors["x"].copy_(torch.randn(runs[0].tensors["x"].shape))
        plain = results(0)
        assert not any(out.isnan().any() for out in plain)
        for kind in (1, 2):
            for got, want in zip(results(kind), plain, strict=True):
                assert torch.equal(got, want)


class BlocksAreFaster(CostModel):
    """Less time for a block than for one product of it."""

    source = "made"

    def measurements(self, workload, candidates):
        us = 1.0 if workload.op == "squeeze_excite" else 4.0
        return [Measurement(kernel_us=us, enqueue_us=2.0, e2e_us=us + 8) for _ in candidates]


OPTIONS = {"backends": ("hopper", "tvm"), "costs": BlocksAreFaster(), "streams": 1}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("wide", "squeezed"), [(96, 8), (480, 20), (32, 4)])
def test_networks(libraries, wide, squeezed, dtype):
    """Once compiled, the kernel is one of those that networks use."""
    from ..helpers.gated_networks import network

    exact = network(wide, squeezed).double().cuda()
    net = copy.deepcopy(exact).to(getattr(torch, dtype))
    exact.load_state_dict(net.state_dict())
    images = torch.randn(12, 4, 3, 60, 60, device="cuda").to(getattr(torch, dtype))
    with torch.no_grad():
        compiled = convoy.compile(net, images[0], cache=False, **OPTIONS)
        assert compiled.plan is not None
        blocks = [c.workload for c in compiled.plan.choices if c.workload.op == "squeeze_excite"]
        assert [w.epilogue.name for w in blocks] == ["", "", "residual_relu"]
        assert all(w.c == wide for w in blocks)
        for x in images:  # a call, a capture, replays
            got, want = compiled(x).double(), exact(x.double())
            assert float((got - want).norm() / want.norm()) < LIMIT[dtype]
