"""Index arithmetic of the Hopper kernels: every element of dx once, every tap in its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from convoy.backends.kernels.sm90 import space as space
from convoy.errors import InvalidWorkload
from convoy.ir.workload import Workload

from . import formulas, model


@pytest.fixture(scope="module")
def f() -> formulas.Formulas:
    return formulas.load()


@st.composite
def dgrads(draw, channels=(1, 3), strides=(1, 2, 3)):
    """Small strided dgrads; channel counts stand for any, as the formulas do not contain them."""
    size, taps, pad = st.integers(1, 13), st.integers(1, 7), st.integers(0, 4)
    stride = st.sampled_from(strides)
    try:
        return Workload(
            "dgrad",
            n=draw(st.integers(1, 3)),
            h=draw(size),
            w=draw(size),
            c=draw(st.sampled_from(channels)),
            k=2,
            r=draw(taps),
            s=draw(taps),
            stride=(draw(stride), draw(stride)),
            padding=(draw(pad), draw(pad), draw(pad), draw(pad)),
        )
    except InvalidWorkload:
        assume(False)


def operands(w: Workload) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((w.n, w.p, w.q, w.k)), random.standard_normal(
        (w.k, w.r, w.s, w.c)
    )


def conv(n, h, w, c, r, s, stride, padding) -> Workload:
    return Workload("dgrad", n, h, w, c, 2, r, s, stride, padding)


@given(
    w=dgrads(),
    kind=st.sampled_from([space.UNITS, space.SORTED, space.TURNED]),
    tile=st.sampled_from([(4, 1), (8, 2), (16, 4)]),
    blocks=st.integers(1, 7),
)
@example(conv(2, 14, 14, 3, 3, 3, (2, 2), (1, 1, 1, 1)), space.UNITS, (16, 4), 5)
@example(conv(1, 12, 12, 3, 1, 1, (2, 2), (0, 0, 0, 0)), space.UNITS, (8, 2), 3)
@example(conv(1, 1, 5, 1, 1, 1, (2, 2), (1, 0, 1, 0)), space.SORTED, (4, 1), 2)  # all zero
@example(conv(2, 9, 9, 1, 7, 2, (3, 2), (0, 3, 4, 1)), space.SORTED, (8, 2), 7)
@example(conv(3, 7, 10, 3, 1, 1, (3, 3), (0, 0, 0, 0)), space.UNITS, (4, 2), 2)  # whole zero rows
@example(conv(2, 8, 7, 1, 1, 2, (2, 3), (1, 0, 0, 1)), space.TURNED, (8, 1), 3)
@settings(max_examples=60)
def test_strided_dgrad_is_dgrad(f, w, kind, tile, blocks):
    dy, filt = operands(w)
    dx, writes = model.strided_dgrad(
        f, w, dy, filt, kind=kind, tile=tile, blocks=blocks, store_rows=4
    )
    assert writes.min() == 1 and writes.max() == 1
    np.testing.assert_allclose(dx, model.brute_force(w, dy, filt), atol=1e-12)


@given(
    w=dgrads(channels=(1, 2, 3, 4), strides=(2,)),
    chunk_rows=st.integers(1, 7),
)
@example(conv(1, 9, 243, 3, 7, 7, (2, 2), (3, 3, 3, 3)), 2)  # two strips
@example(conv(1, 5, 4, 4, 7, 7, (2, 2), (6, 6, 6, 6)), 3)
@settings(max_examples=25)
def test_stem_dgrad_is_dgrad(f, w, chunk_rows):
    dy, filt = operands(w)
    dx, writes = model.stem_dgrad(f, w, dy, filt, chunk_rows=chunk_rows)
    assert writes.min() == 1 and writes.max() == 1
    np.testing.assert_allclose(dx, model.brute_force(w, dy, filt), atol=1e-12)


@given(w=dgrads(channels=(1, 2, 3, 4)), chunk_rows=st.integers(1, 5), strips=st.integers(1, 2))
@example(conv(1, 9, 40, 3, 7, 7, (2, 2), (3, 3, 3, 3)), 2, 2)
@example(conv(1, 9, 16, 3, 4, 4, (2, 2), (1, 1, 1, 1)), 3, 1)  # an even window, an odd border
@settings(max_examples=25)
def test_stem_fprop_is_fprop(f, w, chunk_rows, strips):
    assume(w.stride[0] <= w.r and w.stride[1] * w.c % 2 == 0)
    random = np.random.default_rng(0)
    x = random.standard_normal((w.n, w.h, w.w, w.c))
    filt = random.standard_normal((w.k, w.r, w.s, w.c))
    y, writes = model.stem_fprop(f, w, x, filt, chunk_rows=chunk_rows, strips=strips)
    assert writes.min() == 1 and writes.max() == 1
    np.testing.assert_allclose(y, model.brute_force_fprop(w, x, filt), atol=1e-12)


@given(w=dgrads(channels=(1, 2, 3, 4)), chunk_rows=st.integers(1, 5))
@example(conv(1, 9, 300, 3, 7, 7, (2, 2), (3, 3, 3, 3)), 2)  # two strips
@example(conv(1, 9, 16, 3, 4, 4, (2, 2), (1, 1, 1, 1)), 3)  # an even window, an odd border
@example(conv(2, 12, 16, 4, 7, 9, (2, 2), (3, 4, 3, 4)), 4)  # five tiles
@settings(max_examples=25)
def test_stem_wgrad_is_wgrad(f, w, chunk_rows):
    assume(w.stride[0] <= w.r and w.stride[1] * w.c % 2 == 0)
    random = np.random.default_rng(0)
    x = random.standard_normal((w.n, w.h, w.w, w.c))
    dy = random.standard_normal((w.n, w.p, w.q, w.k))
    dw, found = model.stem_wgrad(f, w, x, dy, chunk_rows=chunk_rows)
    assert found.min() == found.max() == 1  # each weight in one place of the accumulators
    np.testing.assert_allclose(dw, model.brute_force_wgrad(w, x, dy), atol=1e-11)


@given(
    st.integers(1, 300), st.integers(1, 7), st.integers(0, 6), st.integers(1, 12), st.integers(1, 4)
)
def test_strips_cover_a_row(f, q, stride, pad, filter_w, channels):
    strips, columns = f.wgrad_strips(q, stride, pad, filter_w, channels)
    assert columns % 16 == 0 and 16 <= columns <= 128
    assert (strips - 1) * columns < q <= strips * columns
    fits = f.window_row_elements(columns, stride, pad, filter_w, channels) <= 1024
    assert fits or columns == 16  # which the library's check refuses


@given(
    st.integers(1, 300), st.integers(1, 11), st.integers(1, 4), st.integers(0, 9), st.integers(0, 3)
)
def test_python_and_header_agree_on_phases(f, size, taps, stride, pad, phase):
    assume(phase < stride)
    axis = space.PhaseAxis.of(size, taps, stride, pad, phase)
    assert (axis.extent, axis.taps, axis.first, axis.lower) == f.phase_axis(
        size, taps, stride, pad, phase
    )


@given(dividend=st.integers(0, 2**31 - 1), divisor=st.integers(1, 2**31 - 1))
@example(2**31 - 1, 2**31 - 1)
@example(2**31 - 2, 2**31 - 1)
@example(2**31 - 1, 2**30 + 1)
def test_division_by_multiplication(f, dividend, divisor):
    for small in (divisor, divisor >> 16 or 1, divisor & 1023 or 1):
        assert f.quotient(dividend, small) == dividend // small
        exact = dividend // small * small  # where a quotient that is off by one shows
        assert f.quotient(exact, small) == exact // small
        assert exact == 0 or f.quotient(exact - 1, small) == exact // small - 1


@given(
    st.sampled_from([space.UNITS, space.SORTED, space.TURNED]),
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(1, 132),
)
def test_every_tile_is_visited_once(f, kind, phases, rows, columns, blocks):
    work = f.tiles(kind, phases, rows, columns, blocks)
    tiles = [tile for block in work for tile in block]
    assert len(tiles) == len(set(tiles)) == phases * rows * columns
    assert all(0 <= a < phases and 0 <= m < rows and 0 <= n < columns for a, m, n in tiles)
    lengths = [len(block) for block in work]
    most_apart = 1 if kind == space.SORTED else phases
    assert min(lengths) >= 1 and max(lengths) - min(lengths) <= most_apart


def test_ldmatrix_rows_of_a_run_lie_in_different_banks():
    """With the 128-byte swizzle a matrix's eight 16-byte rows must differ modulo 128 bytes."""
    for x in range(model.RUN + 4):
        for chunk in range(8):
            rows = [model.RUN * run + x for run in range(model.RUNS)]
            assert len({chunk ^ (row & 7) for row in rows}) == 8


def test_stmatrix_lanes_put_accumulators_where_the_store_reads_them():
    """The epilogue's addressing, against the layouts of wgmma and stmatrix in the PTX manual."""
    for warp in range(4):
        for j in range(0, 8, 2):
            for register in range(4):  # pack(v[2i], v[2i+1]) of column blocks j, j, j+1, j+1
                block, lower = j + register // 2, register % 2
                for lane in range(32):
                    row = warp * 16 + lane // 4 + 8 * lower  # of d[4 * block + 2 * lower]
                    column = 8 * block + 2 * (lane % 4)
                    # stmatrix: register i of this lane is row lane / 4 of matrix i, whose address
                    # lane 8 * i + row gives.
                    giver = 8 * register + lane // 4
                    lane_row, lane_block = warp * 16 + (giver & 15), giver >> 4
                    assert (lane_row, 8 * (j + lane_block) + 2 * (lane % 4)) == (row, column)


def test_transposed_stmatrix_lanes_put_accumulators_where_the_store_reads_them():
    """The same where the accumulators' rows are channels and their columns pixels."""
    for warp in range(4):
        for j in range(0, 8, 2):
            for register in range(4):
                block, lower = j + register // 2, register % 2
                for lane in range(32):
                    channel = warp * 16 + lane // 4 + 8 * lower
                    pixel = 8 * block + 2 * (lane % 4)
                    # Elements 2 * (lane % 4), +1 of this lane are rows of column lane / 4 of matrix
                    # `register`; the address of row r is given by lane 8 * register + r.
                    giver = 8 * register + 2 * (lane % 4)
                    row = (j + (giver >> 4)) * 8 + (giver & 7)
                    chunk = warp * 2 + (giver >> 3 & 1)
                    assert (row, 8 * chunk + lane // 4) == (pixel, channel)
