"""What GPU tests of fused kernels share: operands in guarded memory, plain and programmatic
launches of a library, chains of them, and comparison with float64."""

from __future__ import annotations

import ctypes
import itertools
import zlib
from typing import Any

import numpy as np
import pytest

from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.ir.device import Device
from convoy.measure.reference import full

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BACKEND = sm90_backend()
DTYPES = ("float16", "bfloat16")
#: Of the whole result; an element may be wrong by MOST times as much of 1 + its size.
TOLERANCE, MOST = {"float16": 1e-3, "bfloat16": 8e-3}, 20
GUARD = 2048


def scaled_operands(w, scales, device="cuda"):
    """Random operands of a workload: normal, those in scales times a factor."""
    return {
        name: (torch.randn(*size, device=device) * scales.get(name, 1.0)).to(getattr(torch, dtype))
        for name, size, dtype in w.operand_shapes()[: -w.num_outputs]
    }


def activate(epilogue, y):
    """The activation of an epilogue alone, in the type of ``y``."""
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


def guarded(size, dtype):
    """A tensor of NaN between others."""
    count = int(np.prod(size))
    whole = torch.full((count + 2 * GUARD,), torch.nan, device="cuda", dtype=getattr(torch, dtype))
    return whole, whole[GUARD:-GUARD].view(size)


class GuardedRun:
    """A workload's operands in memory, and its library's launches of them.

    Attributes:
        problem, operands: The structures of the library's ABI, set by each kernel's class.
        tensors: All operands by name.
        whole, out: The results by name, with and without their guards.
    """

    problem: Any
    operands: Any

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
        problem = self.problem.of(self.w, sm_count, swizzle)
        return self.library.prepare(problem, self.operands(**addresses))

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


def check_launches(run, random_operands, reference, sm_counts=(132, 4)):
    """All launches of a workload, each with other operands than the one before it."""
    w, stream = run.w, torch.cuda.current_stream().cuda_stream
    torch.manual_seed(zlib.crc32(w.key.encode()))
    sets = [random_operands(w) for _ in range(2)]
    wanted = [reference(w, given) for given in sets]
    count = 0
    for swizzle, sm_count in itertools.product(swizzles(w), sm_counts):
        for i, launch in enumerate(run.launches(swizzle, sm_count)):
            run.set(sets[count % 2])
            launch(stream)
            run.check(wanted[count % 2], (swizzle, sm_count, i))
            count += 1
    assert count


def check_reference(w, given, got, share):
    """Results in float64 against those of measurements, within a share of the tolerance."""
    wanted = full(w, {name: tensor.double().cpu().numpy() for name, tensor in given.items()})
    for result, want in zip(got.values(), wanted, strict=True):
        # Where sums in another order are rounded to another number.
        error = np.linalg.norm(result.cpu().numpy() - want)
        assert error <= share * TOLERANCE[w.dtype] * np.linalg.norm(want)


def check_nan(run, given, wanted):
    """NaN is in those elements of all results that have it in float64, and in no others."""
    stream = torch.cuda.current_stream().cuda_stream
    for swizzle in swizzles(run.w):
        run.set(given)
        run.prepared(swizzle).launch(stream)
        torch.cuda.synchronize()
        for name, want in wanted.items():
            assert torch.equal(run.out[name].isnan(), want.isnan()) and want.isnan().any()


def check_chain(runs):
    """Runs, each of which reads what the one before it wrote: launched programmatically, they
    compute the same as plainly."""
    stream, launches = torch.cuda.current_stream().cuda_stream, []
    for i, run in enumerate(runs):
        found = swizzles(run.w)
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
