"""Bottlenecks in one kernel: against float64, with guards around all operands, launched plainly and
programmatically, behind each other and in networks."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import itertools
import zlib

import numpy as np
import pytest

import convoy
from convoy.backends.kernels.sm90 import bottleneck_blocks
from convoy.backends.kernels.sm90.bottleneck import CHOSEN, BottleneckKernel
from convoy.backends.kernels.sm90.bottleneck_blocks import BLOCKS, TILE
from convoy.backends.kernels.sm90.bottleneck_problem import BottleneckLibrary, Operands, Problem
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.cost.model import CostModel
from convoy.ir.bottleneck import Bottleneck, parts
from convoy.ir.device import Device
from convoy.ir.epilogue import NO_EPILOGUE, Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.measure.reference import full

from ..helpers.kernel_accuracy import convolved, loaded
from ..sm90.bottleneck_cases import taken_cases, usual

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("bottleneck")]
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BACKEND = sm90_backend()
DTYPES = ("float16", "bfloat16")
#: Of the whole result; an element may be wrong by MOST times as much of 1 + its size.
TOLERANCE, MOST = {"float16": 1e-3, "bfloat16": 8e-3}, 20
#: Of networks.
LIMIT = {"float16": 6e-3, "bfloat16": 5e-2}
GUARD = 2048
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
    return {
        name: (torch.randn(*size, device=device) * lengths.get(name, 1) ** -0.5).to(
            getattr(torch, dtype)
        )
        for name, size, dtype in w.operand_shapes()[: -w.num_outputs]
    }


def activate(epilogue, y):
    bounds = epilogue.clip_min, epilogue.clip_max
    functions = {"relu": torch.relu, "clip": lambda y: y.clamp(*bounds), "none": lambda y: y}
    return functions[epilogue.activation](y)


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
        names = list(pairs)[-w.num_outputs :]
        self.whole = {name: pairs[name][0] for name in names}
        self.out = {name: self.tensors[name] for name in names}

    def set(self, given):
        for name, tensor in given.items():
            self.tensors[name].copy_(tensor)
        self.clear()
        torch.cuda.synchronize()

    def clear(self):
        for whole in self.whole.values():
            whole.fill_(torch.nan)

    def prepared(self, swizzle, sm_count=132):
        addresses = {
            {"w": "filter"}.get(name, name): tensor.data_ptr()
            for name, tensor in self.tensors.items()
        }
        problem = Problem.of(self.w, sm_count, swizzle)
        return self.library.prepare(problem, Operands(**addresses))

    def launches(self, swizzle, sm_count=132):
        """Plain, and programmatic: with weights that may be read early, and with others."""
        prepared = self.prepared(swizzle, sm_count)
        return [prepared.launch, *(programmatic(self.library, prepared, c) for c in (1, 0))]

    def check(self, wanted, what):
        torch.cuda.synchronize()
        for name, want in wanted.items():
            whole, got = self.whole[name], self.out[name].double()
            guards = torch.cat([whole[:GUARD], whole[-GUARD:]])
            assert guards.isnan().all(), (name, what, "writes beyond its result")
            error = float((got - want).norm() / want.norm().clamp_min(0.1 * want.numel() ** 0.5))
            worst = float(((got - want).abs() / (1 + want.abs())).max())
            limit = TOLERANCE[self.w.dtype]
            assert error < limit and worst < MOST * limit, (name, what, error, worst)


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
        check_launches(libraries[dtype], made(2, 11, 24, 32, 72, 24, dtype=dtype, **fields), (132,))


@pytest.mark.parametrize("which", itertools.product((True, False), repeat=3), ids=str)
def test_some_biases(libraries, which):
    first, second, third = (dataclasses.replace(RELU, bias=bias) for bias in which)
    own = Bottleneck(72, dataclasses.replace(second, residual=True), 24, third)
    w = made(2, 11, 24, 32, 72, 24, epilogue=first, bottleneck=own)
    check_launches(libraries["float16"], w, (132,))


@pytest.mark.parametrize("w", [*taken_cases(12, 2)], ids=lambda w: w.key)
def test_reference_is_that_of_measurements(w):
    w = dataclasses.replace(w, n=1, h=min(w.h, 9), w=min(w.w, 9))
    given = random_operands(w)
    wanted = full(w, {name: tensor.double().cpu().numpy() for name, tensor in given.items()})
    for got, want in zip(reference(w, given).values(), wanted, strict=True):
        # Where sums in another order are rounded to another number.
        error = np.linalg.norm(got.cpu().numpy() - want)
        assert error <= 0.2 * TOLERANCE[w.dtype] * np.linalg.norm(want)


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
    run, stream = Run(libraries[w.dtype], w), torch.cuda.current_stream().cuda_stream
    for swizzle in swizzles(w):
        run.set(given)
        run.prepared(swizzle).launch(stream)
        torch.cuda.synchronize()
        for name, want in wanted.items():
            assert torch.equal(run.out[name].isnan(), want.isnan()) and want.isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_behind_each_other(libraries, dtype):
    """Each reads what the one before it wrote, which lets it start at once; the residual is the
    wide tensor of the one before."""
    torch.manual_seed(1)
    stream, runs, launches = torch.cuda.current_stream().cuda_stream, [], []
    for i, (c, reduce) in enumerate([(64, 64), (64, 32), (32, 64), (64, 64), (64, 0)]):
        w = made(8, 28, c, c, 256, reduce, dtype=dtype)
        run = Run(libraries[dtype], w)
        run.set(random_operands(w))
        if runs:
            run.tensors["x"], run.tensors["residual"] = runs[-1].out["z"], runs[-1].out["y"]
        runs.append(run)
        found = swizzles(w)
        launches.append(run.launches(found[i % len(found)]))

    def results(kind):
        for run in runs:
            run.clear()
        for each in launches:
            each[kind](stream)
        torch.cuda.synchronize()
        return [out.clone() for run in runs for out in run.out.values()]

    for _ in range(20):
        runs[0].tensors["x"].copy_(torch.randn(runs[0].tensors["x"].shape))
        plain = results(0)
        assert not any(out.isnan().any() for out in plain)
        for kind in (1, 2):
            for got, want in zip(results(kind), plain, strict=True):
                assert torch.equal(got, want)


class JointIsFaster(CostModel):
    """Less time for several convolutions together than for one."""

    source = "made"

    def measurements(self, workload, candidates):
        us = 1.0 if workload.is_back_to_back else 4.0
        return [Measurement(kernel_us=us, enqueue_us=2.0, e2e_us=us + 8) for _ in candidates]


OPTIONS = {"backends": ("hopper", "tvm"), "costs": JointIsFaster(), "streams": 1}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("narrow", "wide"), [(64, 256), (32, 128), (48, 192)])
def test_networks(libraries, narrow, wide, dtype):
    """Once compiled, the kernel is one of those that networks use."""
    from ..helpers.residual_networks import network

    exact = network(narrow, wide).double().cuda()
    net = copy.deepcopy(exact).to(getattr(torch, dtype))
    exact.load_state_dict(net.state_dict())
    images = torch.randn(12, 4, 3, 60, 60, device="cuda").to(getattr(torch, dtype))
    with torch.no_grad():
        compiled = convoy.compile(net, images[0], cache=False, **OPTIONS)
        assert compiled.plan is not None
        joint = [c.workload.bottleneck for c in compiled.plan.choices if c.workload.bottleneck]
        assert [own.reduce for own in joint] == [narrow, narrow, 0]
        assert all(own.expand == wide and own.expand_epilogue == ADDED for own in joint)
        for x in images:  # a call, a capture, replays
            got, want = compiled(x).double(), exact(x.double())
            assert float((got - want).norm() / want.norm()) < LIMIT[dtype]
