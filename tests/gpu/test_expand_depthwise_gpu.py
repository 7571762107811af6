"""1x1 convolutions with depthwise ones behind them in one kernel: against float64, with guards
around all operands, launched plainly and programmatically, behind each other and in networks."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import itertools
import zlib

import numpy as np
import pytest

import convoy
from convoy.backends.kernels.sm90 import expand_tiles
from convoy.backends.kernels.sm90.expand_depthwise import CHOSEN, ExpandDepthwiseKernel
from convoy.backends.kernels.sm90.expand_tiles import LIMITS
from convoy.backends.kernels.sm90.expansion_problem import ExpansionLibrary, Operands, Problem
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.cost.model import CostModel
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.ir.measurement import Measurement
from convoy.measure.reference import full

from ..helpers.kernel_accuracy import convolved, loaded
from ..sm90.expansion_cases import taken_cases, usual

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("expand_depthwise")]
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BACKEND = sm90_backend()
DTYPES = ("float16", "bfloat16")
#: Of the whole result; an element may be wrong by MOST times as much of 1 + its size.
TOLERANCE, MOST = {"float16": 1e-3, "bfloat16": 8e-3}, 20
#: Of networks.
LIMIT = {"float16": 6e-3, "bfloat16": 5e-2}
GUARD = 2048


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
    scale = {"expand": w.expansion.channels**-0.5, "w": w.taps**-0.5}
    return {
        name: (torch.randn(*size, device=device) * scale.get(name, 1.0)).to(getattr(torch, dtype))
        for name, size, dtype in w.operand_shapes()[:-1]
    }


def activate(epilogue, y):
    functions = {"relu": torch.relu, "clip": lambda y: y.clamp(*bounds), "none": lambda y: y}
    bounds = epilogue.clip_min, epilogue.clip_max
    found = functions.get(epilogue.activation)
    return (found or getattr(torch.nn.functional, epilogue.activation))(y)


def reference(w, given):
    """The result in float64, (n, p, q, k); the tensor between the convolutions is rounded."""
    exact = {name: tensor.double() for name, tensor in given.items()}
    e = w.expansion.epilogue
    wide = exact["x"] @ exact["expand"].T + exact.get("expand_bias", 0.0)
    wide = activate(e, wide).to(getattr(torch, w.dtype)).double()
    return activate(w.epilogue, convolved(w, wide, exact["w"]) + exact.get("bias", 0.0))


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
        self.whole, self.y = pairs["y"]
        self.given = {name: tensor for name, (_, tensor) in pairs.items() if name != "y"}

    def set(self, given):
        for name, tensor in given.items():
            self.given[name].copy_(tensor)
        self.whole.fill_(torch.nan)
        torch.cuda.synchronize()

    def prepared(self, swizzle, sm_count=132):
        names = {"filter": "w", **{n: n for n in ("x", "expand", "expand_bias", "bias")}}
        addresses = {
            field: self.given[name].data_ptr()
            for field, name in names.items()
            if name in self.given
        }
        operands = Operands(**addresses, y=self.y.data_ptr())
        return self.library.prepare(Problem.of(self.w, sm_count, swizzle), operands)

    def launches(self, swizzle, sm_count=132):
        """Plain, and programmatic: with weights that may be read early, and with others."""
        prepared = self.prepared(swizzle, sm_count)
        return [prepared.launch, *(programmatic(self.library, prepared, c) for c in (1, 0))]

    def check(self, want, what):
        torch.cuda.synchronize()
        got = self.y.double()
        guards = torch.cat([self.whole[:GUARD], self.whole[-GUARD:]])
        assert guards.isnan().all(), (what, "writes beyond its result")
        error = float((got - want).norm() / want.norm().clamp_min(0.1 * want.numel() ** 0.5))
        worst = float(((got - want).abs() / (1 + want.abs())).max())
        limit = TOLERANCE[self.w.dtype]
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


def check_launches(library, w, sm_counts=(132, 4)):
    """All launches of a workload, each with other operands than the one before it."""
    torch.manual_seed(zlib.crc32(w.key.encode()))
    sets = [random_operands(w) for _ in range(2)]
    wanted = [reference(w, given) for given in sets]
    run, stream = Run(library, w), torch.cuda.current_stream().cuda_stream
    count = 0
    for swizzle, sm_count in itertools.product(swizzles(w), sm_counts):
        for i, launch in enumerate(run.launches(swizzle, sm_count)):
            run.set(sets[count % 2])
            launch(stream)
            run.check(wanted[count % 2], (swizzle, sm_count, i))
            count += 1
    assert count


@pytest.mark.parametrize("w", workloads(), ids=lambda w: w.key)
def test_launches_against_float64(libraries, w):
    check_launches(libraries[w.dtype], w)


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
        check_launches(libraries[dtype], w, (132,))


@pytest.mark.parametrize("w", [*taken_cases(12, 2)], ids=lambda w: w.key)
def test_reference_is_that_of_measurements(w):
    w = dataclasses.replace(w, n=1, h=min(w.h, 9), w=min(w.w, 9))
    given = random_operands(w)
    (want,) = full(w, {name: tensor.double().cpu().numpy() for name, tensor in given.items()})
    got = reference(w, given).cpu().numpy()
    # Where sums in another order are rounded to another number.
    assert np.linalg.norm(got - want) <= 0.1 * TOLERANCE[w.dtype] * np.linalg.norm(want)


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
    want = reference(w, given)
    run, stream = Run(libraries[w.dtype], w), torch.cuda.current_stream().cuda_stream
    for swizzle in swizzles(w):
        run.set(given)
        run.prepared(swizzle).launch(stream)
        torch.cuda.synchronize()
        assert torch.equal(run.y.isnan(), want.isnan()) and want.isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_behind_each_other(libraries, dtype):
    """Each reads what the one before it wrote, which lets it start at once."""
    torch.manual_seed(1)
    epilogue, widths = Epilogue(bias=True, activation="relu"), (16, 96, 40, 200, 64, 16)
    stream, runs, launches = torch.cuda.current_stream().cuda_stream, [], []
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
            run.given["x"] = runs[-1].y
        runs.append(run)
        found = swizzles(w)
        launches.append(run.launches(found[i % len(found)]))

    def results(kind):
        for run in runs:
            run.whole.fill_(torch.nan)
        for each in launches:
            each[kind](stream)
        torch.cuda.synchronize()
        return [run.y.clone() for run in runs]

    for _ in range(20):
        runs[0].given["x"].copy_(torch.randn(runs[0].given["x"].shape))
        plain = results(0)
        assert not any(y.isnan().any() for y in plain)
        for kind in (1, 2):
            for got, want in zip(results(kind), plain, strict=True):
                assert torch.equal(got, want)


class JointIsFaster(CostModel):
    """Less time for both convolutions together than for one."""

    source = "made"

    def measurements(self, workload, candidates):
        us = 1.0 if workload.expansion is not None else 4.0
        return [Measurement(kernel_us=us, enqueue_us=2.0, e2e_us=us + 8) for _ in candidates]


OPTIONS = {"backends": ("hopper", "tvm"), "costs": JointIsFaster(), "streams": 1}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mobilenet_v2", "efficientnet", "mobilenet_v3"])
def test_networks(libraries, kind, dtype):
    """Once compiled, the kernel is one of those that networks use."""
    from ..helpers.inverted_residuals import network

    exact = network(kind).double().cuda()
    net = copy.deepcopy(exact).to(getattr(torch, dtype))
    exact.load_state_dict(net.state_dict())
    images = torch.randn(12, 4, 3, 60, 60, device="cuda").to(getattr(torch, dtype))
    with torch.no_grad():
        compiled = convoy.compile(net, images[0], cache=False, **OPTIONS)
        assert compiled.plan is not None
        joint = [c.workload for c in compiled.plan.choices if c.workload.expansion is not None]
        assert [w.expansion.channels for w in joint] == [16, 24]
        assert all(w.epilogue.activation == w.expansion.epilogue.activation for w in joint)
        for x in images:  # a call, a capture, replays
            got, want = compiled(x).double(), exact(x.double())
            assert float((got - want).norm() / want.norm()) < LIMIT[dtype]
