"""The kernel of whole stems against float64, with guards around the result, plainly launched and
programmatically."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.image import ImageConvKernel
from convoy.ir.activation_values import activate
from convoy.ir.device import Device

from ..helpers.kernel_abi.library import Operands
from ..helpers.kernel_abi.stem import Problem, StemLibrary
from ..helpers.kernel_accuracy import convolved, loaded
from ..sm90.stem_cases import cases, usual

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("stem")]

BACKEND = sm90_backend()
DTYPES = ("float16", "bfloat16")
TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3}
GUARD = 2048


def workloads():
    found = [*usual("float16"), *usual("bfloat16"), *cases(150, 11)]
    return [w for w in found if BACKEND.accepts(w, Device()) is None]


def kernels(parameters=(), device=None):
    """What the tests run, whichever of them are selected."""
    return {ImageConvKernel(dtype) for dtype in DTYPES}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    found = loaded(kernels(), StemLibrary, tmp_path_factory.mktemp("libraries"))
    return {kernel.dtype: library for kernel, library in found.items()}


@pytest.mark.parametrize("w", workloads(), ids=lambda w: w.key)
def test_launches_against_float64(libraries, w):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    given = {
        name: torch.randn(*size, device="cuda").to(getattr(torch, dtype))
        for name, size, dtype in w.operand_shapes()[:-1]
    }
    given["w"] *= (3 / (w.stem.channels * w.taps)) ** 0.5
    want = reference(torch, w, given)
    library = libraries[w.dtype]
    launches = BACKEND.propose(w, Device())
    assert launches
    for candidate in launches:
        swizzle = BACKEND.launch_of(candidate).swizzle
        for sm_count in (Device().sm_count, 4):
            whole = torch.full(
                (want.numel() + 2 * GUARD,), torch.nan, device="cuda", dtype=getattr(torch, w.dtype)
            )
            operands = Operands(
                a=given["x"].data_ptr(),
                b=given["w"].data_ptr(),
                bias=given["bias"].data_ptr() if "bias" in given else None,
                d=whole[GUARD:].data_ptr(),
            )
            prepared = library.prepare(Problem.of(w, sm_count, swizzle), operands)
            for launch in (prepared.launch, programmatic(library, prepared)):
                whole.fill_(torch.nan)
                launch(torch.cuda.current_stream().cuda_stream)
                torch.cuda.synchronize()
                assert whole[:GUARD].isnan().all() and whole[-GUARD:].isnan().all()
                got = whole[GUARD:-GUARD].reshape(want.shape).double()
                error = ((got - want).norm() / want.norm()).item()
                assert error < TOLERANCE[w.dtype], (candidate.kernel, sm_count, error)


def programmatic(library, prepared):
    """A launch that may start before its predecessor has ended, weights first."""

    def launch(stream):
        library.call("launch_programmatic", prepared._state, ctypes.c_void_p(stream), 1)

    return launch


def test_nan_is_kept_and_infinity_stays_where_it_is(libraries):
    """A tap that is there only to fill up a step multiplies nothing."""
    torch = pytest.importorskip("torch")
    w = next(usual())
    x = torch.zeros(*w.operand_shapes()[0][1], device="cuda")
    x[0, 1, 100, 100], x[0, 0, 20, 30] = torch.nan, torch.inf
    filters = torch.ones(*w.operand_shapes()[1][1], device="cuda", dtype=torch.float16)
    bias = torch.zeros(w.k, device="cuda", dtype=torch.float16)
    want = reference(torch, w, {"x": x, "w": filters, "bias": bias})
    for candidate in BACKEND.propose(w, Device()):
        got = torch.zeros(want.shape, device="cuda", dtype=torch.float16)
        operands = Operands(
            a=x.data_ptr(), b=filters.data_ptr(), bias=bias.data_ptr(), d=got.data_ptr()
        )
        swizzle = BACKEND.launch_of(candidate).swizzle
        prepared = libraries["float16"].prepare(Problem.of(w, 132, swizzle), operands)
        prepared.launch(torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        assert torch.equal(got.isnan(), want.isnan()) and got.isnan().any()
        assert torch.equal(got.isinf(), want.isinf()) and got.isinf().any()


def reference(torch, w, given):
    """The result in float64, (n, p, q, k), of an image that is rounded first."""
    x = given["x"].to(getattr(torch, w.dtype)).double()
    if not w.stem.channels_last:
        x = x.permute(0, 2, 3, 1)
    x = torch.nn.functional.pad(x, (0, w.c - w.stem.channels))
    y = convolved(w, x, given["w"].double())
    y = y + given["bias"].double() if "bias" in given else y
    e = w.epilogue
    values = activate(e.activation, y.cpu().numpy(), e.alpha, e.clip_min, e.clip_max)
    y = torch.from_numpy(np.asarray(values)).to(y)
    if not w.stem.pools:
        return y
    top, left, bottom, right = w.stem.padding
    around = torch.nn.functional.pad(
        y.permute(0, 3, 1, 2), (left, right, top, bottom), value=-torch.inf
    )
    pooled = torch.nn.functional.max_pool2d(around, w.stem.window, w.stem.stride)
    return pooled.permute(0, 2, 3, 1)
