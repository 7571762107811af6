"""Gates of channels in the kernel that multiplies an image by them: its threads, and its CUDA."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax import op

from convoy.tir.channel_gate import ChannelGate
from convoy.tir.channel_gate_layout import MOST_GATES_US, GatedShape, Layout, layout_of

from ..emulation.kernels import call, compile_kernels
from ..graph.kernels import TARGET, Case, cuda_source, dense, excitation

Emit = Callable[..., relax.Expr]


def case(
    images: int, pixels: tuple[int, int], channels: int, length: int, dtype: str = "float16"
) -> Case:
    shapes = [(images, *pixels, channels), (images, 1, 1, length), (channels, 1, 1, length)]
    shapes.append((channels,))
    return Case("gate", shapes, [dtype] * 4, excitation(op.sigmoid), "ChannelGate")


def kernel(one: Case) -> tirx.PrimFunc:
    with TARGET:
        found = ChannelGate().apply(one.kernel()[0], TARGET, False)
    assert found is not None
    return found.mod["main"]


#: Squeeze-and-excitation blocks of EfficientNet-B0, MobileNetV3, RegNetY, and odd ones.
SHAPES = [
    (1, (112, 112), 32, 8),
    (1, (28, 28), 144, 8),
    (2, (14, 14), 480, 24),
    (1, (7, 7), 1152, 48),
    (1, (7, 7), 960, 240),
    (3, (7, 7), 440, 112),
    (1, (5, 3), 20, 36),
    (2, (1, 9), 8, 4),
    (9, (31, 33), 13 * 8, 17 * 4),
]


def test_values() -> None:
    cases = {f"gate_{i}": case(*shape) for i, shape in enumerate(SHAPES)}
    cases["gate_f32"] = case(2, (6, 5), 36, 20, "float32")
    library = compile_kernels({name: kernel(one) for name, one in cases.items()}, TARGET)
    for name, one in cases.items():
        x, s, w, b = (a.astype("float64") for a in one.inputs())
        sums = s[:, 0, 0] @ w[:, 0, 0].T + b
        want = x * (1 / (1 + np.exp(-sums)))[:, None, None]
        for backwards in (False, True):
            *_, got = call(library[name], *one.kernel()[1], backwards=backwards)
            np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("shape", SHAPES[:6])
def test_cuda(shape: tuple[int, tuple[int, int], int, int]) -> None:
    """All of the image and of the matrix is moved 16 bytes at a time, behind one barrier."""
    one = case(*shape)
    func = kernel(one)
    source = cuda_source(func)
    signature, body = source.split("{", 1)
    pointers = [name for _, name in re.findall(r"(half) ?\* __restrict__ (\w+)", signature)]
    bias = "p3_ptr"  # an element for each gate
    assert bias in pointers and len(pointers) == 5
    for pointer in pointers:
        accesses = body.count(f"{pointer} + ") + body.count(f"{pointer}[")
        vectors = body.count(f"*(uint4*)({pointer} + ")
        assert vectors == (0 if pointer == bias else accesses), (pointer, source)
    assert source.count("__syncthreads") == 1
    first, second = source.split("__syncthreads")
    assert "p0_ptr" in first and "p0_ptr" not in second  # loaded before the gates are known


SHAPE = st.builds(
    GatedShape,
    st.integers(1, 64),
    st.integers(2, 20000),
    st.integers(1, 500).map(lambda n: 8 * n),
    st.integers(1, 40).map(lambda n: 8 * n),
    st.just(8),
    st.just(8),
)


@given(SHAPE)
def test_layouts(shape: GatedShape) -> None:
    layout = layout_of(shape)
    if layout is None:
        return
    assert layout.gates_us <= MOST_GATES_US
    assert layout.rows * layout.lanes <= layout.threads <= 256 and layout.threads % 32 == 0
    assert layout.chunks * layout.lanes >= layout.vectors > (layout.chunks - 1) * layout.lanes
    assert layout.parts * layout.pixels >= shape.pixels > (layout.parts - 1) * layout.pixels
    assert layout.weights * layout.threads * shape.of_row >= layout.gates * shape.length


def test_blocks() -> None:
    """Small images leave a GPU's SMs to few blocks, large batches have each read little twice."""

    def layout(images: int, size: int, channels: int, length: int) -> Layout:
        found = layout_of(GatedShape(images, size * size, channels, length, 8, 8))
        assert found is not None
        return found

    for args in [(1, 112, 32, 8), (1, 28, 240, 16), (1, 14, 672, 32)]:
        assert 100 <= layout(*args).blocks <= 400
    assert layout(1, 7, 440, 112).blocks <= 60
    large = layout(64, 56, 144, 8)
    read = large.blocks * large.gates * 8
    assert read < 64 * 56 * 56 * 144 / 20  # matrix elements, to those of the image


def test_a_large_matrix_is_left_to_a_kernel_of_its_own() -> None:
    assert layout_of(GatedShape(1, 49, 3024, 760, 8, 8)) is None
    one = case(1, (7, 7), 3024, 760)
    kernels = [f for f in one.fused().functions.values() if isinstance(f, tirx.PrimFunc)]
    assert len(kernels) == 2


def read_twice(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
    """Gates that another kernel reads too."""
    gate = emit(op.sigmoid(dense(24, 24)(emit, others[0])))
    wide = emit(op.multiply(x, emit(op.reshape(gate, (2, 1, 1, 24)))))
    return emit(relax.Tuple([wide, gate]))


def of_pixels(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
    """Gates that are the same for all channels, but not for all pixels."""
    gate = emit(op.matmul(x, others[1]))
    return emit(op.multiply(emit(op.sigmoid(gate)), x))


@pytest.mark.parametrize("build", [read_twice, of_pixels])
def test_others_are_not_fused(build: Callable[..., relax.Expr]) -> None:
    columns = 24 if build is read_twice else 1
    shapes = [(2, 6, 6, 24), (2, 24), (24, columns)]
    fused = Case("other", shapes, ["float16"] * 3, build, "").fused()
    kernels = [f for f in fused.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert all(ChannelGate().apply(func, TARGET, False) is None for func in kernels)
