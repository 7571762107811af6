"""Pixels of a resize: found by integers, exactly, and loaded as vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.op.image import resize2d

import convoy
from convoy.lower.legalize_resize import coordinates, nearest

from ..emulation.kernels import emulate
from ..graph.kernels import TARGET, Case
from ..tir.test_schedules import cuda_source, schedule

MODES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"]
ROUNDINGS = ["round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


def place(mode: str, x: int, size: int, count: int) -> Fraction:
    """Where pixel ``x`` of ``count`` lies in a row of ``size``, by the definition of the mode."""
    scale = Fraction(size, count)
    if mode == "asymmetric":
        return x * scale
    if mode == "align_corners":
        return Fraction((size - 1) * x, count - 1)
    if mode == "tf_half_pixel_for_nn":
        return (x + Fraction(1, 2)) * scale
    if mode == "pytorch_half_pixel" and count == 1:
        return Fraction(0)
    return (x + Fraction(1, 2)) * scale - Fraction(1, 2)


ROUND: dict[str, Callable[[Fraction], int]] = {
    "round": round,  # to even
    "floor": lambda p: p.numerator // p.denominator,
    "ceil": lambda p: -(-p.numerator // p.denominator),
    "round_prefer_floor": lambda p: ROUND["ceil"](p - Fraction(1, 2)),
    "round_prefer_ceil": lambda p: ROUND["floor"](p + Fraction(1, 2)),
}


def clamped(pixel: int, size: int) -> int:
    return min(max(pixel, 0), size - 1)


def value(expr: tvm.tirx.Expr) -> float:
    return float(tvm.sym.Analyzer().simplify(expr).value)


@pytest.mark.parametrize("mode", MODES)
def test_places_are_those_of_the_definition(mode: str) -> None:
    for size in (1, 2, 3, 5, 8):
        for count in (1, 2, 3, 4, 7, 16):
            places = coordinates(mode, size, count)
            if places is None:
                assert mode == "align_corners" and count == 1
                continue
            for x in range(count):
                wanted, at = place(mode, x, size, count), tvm.tirx.const(x, "int64")
                assert Fraction(places.a * x + places.b, places.c) == wanted
                pixel = wanted.numerator // wanted.denominator
                assert value(places.inside(places.floor(at))) == clamped(pixel, size)
                assert value(places.inside(places.floor(at), 1)) == clamped(pixel + 1, size)
                assert value(places.fraction(at)) == pytest.approx(float(wanted - pixel), abs=1e-6)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_the_nearest_pixel_is_that_of_the_rounding(mode: str, rounding: str) -> None:
    declined = 0
    for size in (1, 2, 3, 5, 8):
        for count in (1, 2, 3, 4, 7, 16):
            places = coordinates(mode, size, count)
            found = nearest(places, rounding) if places is not None else None
            if found is None:
                declined += 1
                continue
            for x in range(count):
                wanted = clamped(ROUND[rounding](place(mode, x, size, count)), size)
                at = tvm.tirx.const(x, "int64")
                assert value(found.inside(found.floor(at))) == wanted, (size, count, x)
    assert declined <= (5 if mode == "align_corners" else 0) + (6 if rounding == "round" else 0)


def resized(layout: str, size: tuple[int, int], **options: str) -> Callable[..., relax.Expr]:
    return lambda emit, x: emit(resize2d(x, size, layout=layout, **options))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners"])
@pytest.mark.parametrize("size", [(10, 15), (3, 4), (5, 5)])
def test_linear_as_pytorch(layout: str, mode: str, size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 5), "float32")
    want = torch.nn.functional.interpolate(
        torch.from_numpy(x), size, mode="bilinear", align_corners=mode == "align_corners"
    ).numpy()
    turned = (lambda y: y) if layout == "NCHW" else (lambda y: y.transpose(0, 2, 3, 1))
    build = resized(layout, size, method="linear", coordinate_transformation_mode=mode)
    case = Case("resize", [turned(x).shape], ["float32"], build, "")
    (got,) = convoy.build(case.module(), "llvm").session()(np.ascontiguousarray(turned(x)))
    np.testing.assert_allclose(np.array(got), turned(want), atol=1e-5)


CASES = {
    "nearest": {"method": "nearest_neighbor", "rounding_method": "round"},
    "linear": {"method": "linear"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_channels_are_loaded_as_vectors(options: dict[str, str]) -> None:
    """A thread reads the pixels that its result needs, 16 bytes at a time, and no others."""
    build = resized("NHWC", (8, 12), **options)
    case = Case("resize", [(1, 4, 6, 16)], ["float16"], build, "Elementwise")
    func, arrays = case.kernel()
    rule, scheduled = schedule(func)
    assert rule == "Elementwise"
    *_, got = emulate(scheduled, TARGET, *arrays)
    np.testing.assert_allclose(got, case.reference(case.inputs()), atol=2e-3)
    source = cuda_source(scheduled)
    reads = 4 if options["method"] == "linear" else 1
    assert len(re.findall(r"\*\(uint4\*\)\(p0_ptr \+ ", source)) == reads, source


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_a_transposed_result_is_right_too(method: str) -> None:
    def build(emit: Callable[..., relax.Expr], x: relax.Expr) -> relax.Expr:
        y = emit(resize2d(x, (8, 16), layout="NHWC", method=method))
        return emit(relax.op.permute_dims(y, [0, 3, 1, 2]))

    case = Case("resize", [(1, 4, 6, 3)], ["float16"], build, "Elementwise")
    func, arrays = case.kernel()
    *_, got = emulate(schedule(func)[1], TARGET, *arrays)
    np.testing.assert_allclose(got, case.reference(case.inputs()), atol=1e-2)
