"""Every candidate of the depthwise backend against float64, with guards around the result."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from convoy.backends.kernels.depthwise.family import depthwise_backend
from convoy.ir.device import Device
from convoy.ir.workload import Workload

from ..helpers.kernel_abi.library import KernelLibrary, Operands, Shape
from ..helpers.kernel_accuracy import convolved, loaded

pytestmark = pytest.mark.gpu

BACKEND = depthwise_backend(limit=99)
TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}
GUARD = 2048


def workloads():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    try:
        cases = importlib.import_module("depthwise.cases")
    finally:
        sys.path.pop(0)
    every, halves = ("float16", "bfloat16", "float32"), ("float16", "bfloat16")
    found = [*cases.cases(60, 7, every), *cases.grouped_cases(30, 8, halves)]
    return [w for w in found if BACKEND.accepts(w, Device()) is None]


def kernels(parameters=(), device=None):
    """What the tests run, whichever of them are selected."""
    candidates = [c for w in workloads() for c in BACKEND.propose(w, Device())]
    return {BACKEND.launch_of(c).kernel for c in candidates}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return loaded(kernels(), KernelLibrary, tmp_path_factory.mktemp("libraries"))


@pytest.mark.parametrize("w", workloads(), ids=lambda w: w.key)
def test_candidates_against_float64(libraries, w):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    dtype = getattr(torch, w.dtype)
    shapes = w.operand_shapes()[:-1]
    given = {name: torch.randn(*size, device="cuda").to(dtype) for name, size, _ in shapes}
    want = reference(torch, w, given)
    a, b = {"fprop": ("x", "w"), "dgrad": ("dy", "w"), "wgrad": ("dy", "x")}[w.op]
    for candidate in BACKEND.propose(w, Device()):
        launch = BACKEND.launch_of(candidate)
        for sm_count in (Device().sm_count, 4):
            library, shape = libraries[launch.kernel], Shape.of(w, sm_count, swizzle=launch.swizzle)
            whole = torch.full((want.numel() + 2 * GUARD,), torch.nan, device="cuda", dtype=dtype)
            workspace = torch.empty(max(256, library.workspace(shape)), device="cuda").byte()
            operands = Operands(
                *(given[a].data_ptr(), given[b].data_ptr()),
                *(given[name].data_ptr() if name in given else None for name in EXTRA),
                *(None, None, whole[GUARD:].data_ptr(), None, workspace.data_ptr()),
            )
            prepared = library.prepare(shape, operands)
            prepared.launch(torch.cuda.current_stream().cuda_stream)
            torch.cuda.synchronize()
            got = whole[GUARD:-GUARD].view(want.shape).double()
            error = float((got - want).norm() / want.norm().clamp_min(1e-9))
            assert error < TOLERANCE[w.dtype], f"{launch.label}: {error}"
            guards = torch.cat([whole[:GUARD], whole[-GUARD:]])
            assert guards.isnan().all(), f"{launch.label} writes beyond its result"


def test_problems_of_a_process_share_kernels(libraries):
    """What is prepared later, with less shared memory, takes none from what was prepared before."""
    torch = pytest.importorskip("torch")
    problems, tensors = [], []
    for c, groups in ((216, 9), (256, 2), (64, 2)):
        same = {"padding": (1, 1, 1, 1), "groups": groups}
        w = Workload("fprop", 8, 28, 28, c, c, 3, 3, **same)
        shapes = [shape for _, shape, _ in w.operand_shapes()]
        tensors += [torch.zeros(*shape, device="cuda").half() for shape in shapes]
        x, filters, y = (tensor.data_ptr() for tensor in tensors[-3:])
        for launch in map(BACKEND.launch_of, BACKEND.propose(w, Device())):
            operands = Operands(x, filters, *[None] * 4, y, None, None)
            problem = Shape.of(w, 132, swizzle=launch.swizzle), operands
            needed = libraries[launch.kernel].prepare(*problem).footprint().shared_bytes
            problems.append((needed, libraries[launch.kernel], problem))
    problems.sort(key=lambda entry: -entry[0])
    for prepared in [library.prepare(*problem) for _, library, problem in problems]:
        prepared.launch(torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()


EXTRA = ("residual", "bias")


def reference(torch, w, given):
    """The result in float64, NHWC or KRSC."""
    wide = {name: tensor.double() for name, tensor in given.items()}
    if w.op == "fprop":
        y = convolved(w, wide["x"], wide["w"])
        y = y + sum(wide[name] for name in EXTRA if name in wide)
        low, high = w.epilogue.clip_min, w.epilogue.clip_max
        activations = {"none": lambda v: v, "clip": lambda v: v.clamp(low, high)}
        name = w.epilogue.activation
        return activations.get(name, getattr(torch.nn.functional, name, None))(y)
    shape = w.operand_shapes()[-1][1]
    unknown = torch.zeros(*shape, dtype=torch.float64, device=given["dy"].device)
    unknown.requires_grad_()
    y = convolved(w, *((unknown, wide["w"]) if w.op == "dgrad" else (wide["x"], unknown)))
    y.backward(wide["dy"])
    return unknown.grad
