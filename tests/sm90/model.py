"""What the kernels of codegen/sm90 compute, step by step in numpy, and dgrad by definition.

Tile and phase arithmetic is the kernels' own (formulas.py); the copy engine, wgmma, ldmatrix and
stmatrix are modelled here from the PTX manual.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from convoy.ir.workload import Workload

from .formulas import Formulas


def products(w: Workload) -> Iterator[tuple[int, int, int, int, int, int]]:
    """(p, q, r, s, h, x) of the forward convolution: output pixel, tap, input pixel it lies on."""
    for p, q, r, s in itertools.product(range(w.p), range(w.q), range(w.r), range(w.s)):
        h = p * w.stride[0] + r - w.padding[0]
        x = q * w.stride[1] + s - w.padding[1]
        if 0 <= h < w.h and 0 <= x < w.w:
            yield p, q, r, s, h, x


def brute_force(w: Workload, dy: np.ndarray, filt: np.ndarray) -> np.ndarray:
    """dx by definition: every product of the forward convolution, transposed."""
    dx = np.zeros((w.n, w.h, w.w, w.c))
    for p, q, r, s, h, x in products(w):
        dx[:, h, x] += dy[:, p, q] @ filt[:, r, s]
    return dx


@dataclass
class Im2col:
    """The copy engine's im2col mode over an (n, h, w, c) array or view: a box of base pixels
    (lower corner and extent along h and w), walked in row-major order."""

    tensor: np.ndarray
    lower: tuple[int, int]
    extent: tuple[int, int]

    def pixels(self, n: int, h: int, w: int, count: int):
        """``count`` base pixels from (n, h, w) on."""
        for _ in range(count):
            yield n, h, w
            w += 1
            if w == self.lower[1] + self.extent[1]:
                w = self.lower[1]
                h += 1
            if h == self.lower[0] + self.extent[0]:
                h = self.lower[0]
                n += 1

    def load(self, start: tuple[int, int, int], offset: tuple[int, int], count: int) -> np.ndarray:
        out = np.zeros((count, self.tensor.shape[3]))
        for i, (n, h, w) in enumerate(self.pixels(*start, count)):
            at = (n, h + offset[0], w + offset[1])
            if all(0 <= x < size for x, size in zip(at, self.tensor.shape[:3], strict=True)):
                out[i] = self.tensor[at]
        return out

    def add(self, start: tuple[int, int, int], rows: np.ndarray, columns: slice) -> None:
        """A store that adds, so that a second write to an element is seen."""
        for i, at in enumerate(self.pixels(*start, len(rows))):
            if all(0 <= x < size for x, size in zip(at, self.tensor.shape[:3], strict=True)):
                self.tensor[at][columns] += rows[i][: self.tensor[at][columns].shape[0]]


def strided_dgrad(
    f: Formulas,
    w: Workload,
    dy: np.ndarray,
    filt: np.ndarray,
    *,
    kind: int,
    tile: tuple[int, int],
    blocks: int,
    store_rows: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(dx, how often each element was written) as dgrad_strided.cuh and its library go about it.

    ``tile`` stands for the kernel's rows and columns, ``store_rows`` for its 64-row stores and
    for the rows of its zero tile.
    """
    rows, columns = tile
    dx, writes = np.zeros((w.n, w.h, w.w, w.c)), np.zeros((w.n, w.h, w.w, w.c), int)
    phases = []  # taps, phases, axes, pixels of dx between columns
    for a in range(w.stride[0]):
        h = f.phase_axis(w.h, w.r, w.stride[0], w.padding[0], a)
        if h[0] and not h[1]:  # whole rows of dx
            phases.append((0, a, 0, h, (w.w, 0, 0, 0), 1))
            continue
        for b in range(w.stride[1]):
            x = f.phase_axis(w.w, w.s, w.stride[1], w.padding[1], b)
            if h[0] and x[0]:
                phases.append((h[1] * x[1], a, b, h, x, w.stride[1]))
    phases.sort(key=lambda phase: -phase[0])
    with_taps = [phase for phase in phases if phase[0]]
    zero = [phase for phase in phases if not phase[0]]

    def matrix_rows(phase) -> int:
        return w.n * phase[3][0] * phase[4][0]

    def pixel(phase, row: int, lower: tuple[int, int]) -> tuple[int, int, int]:
        plane, width = phase[3][0] * phase[4][0], phase[4][0]
        return row // plane, row % plane // width + lower[0], row % width + lower[1]

    def store(phase, row: int, column: int, values: np.ndarray) -> None:
        a, b, extent = phase[1], phase[2], (phase[3][0], phase[4][0])
        for tensor, what in ((dx, values), (writes, np.ones_like(values, int))):
            view = tensor[:, a :: w.stride[0], b :: phase[5]]
            Im2col(view, (0, 0), extent).add(
                pixel(phase, row, (0, 0)), what, slice(column, column + columns)
            )

    def span(phase) -> int:  # rows of a tile for each of the kernel's
        return w.stride[1] // phase[5]

    order_phases = max(1, len(with_taps))  # a phase of empty tiles where all of dx is zero
    grid_rows = max(-(-matrix_rows(phase) // (rows * span(phase))) for phase in phases)
    grid_columns = -(-w.c // columns)
    for tiles in f.tiles(kind, order_phases, grid_rows, grid_columns, blocks):
        for index, m, n in tiles:
            row0, column0 = m * rows, n * columns
            if index == 0:
                for phase in zero:
                    first = m * rows * span(phase)
                    for row in range(first, first + rows * span(phase), store_rows):
                        if row < matrix_rows(phase):
                            store(phase, row, column0, np.zeros((store_rows, columns)))
            if index >= len(with_taps) or row0 >= matrix_rows(with_taps[index]):
                continue
            phase = with_taps[index]
            _, _, _, h, x, _ = phase
            lower = (h[3], x[3])
            load = Im2col(dy, lower, (h[0], x[0]))
            result = np.zeros((rows, columns))
            for th in range(h[1]):
                for tw in range(x[1]):
                    r = f.filter_position(h[2], w.stride[0], th)
                    s = f.filter_position(x[2], w.stride[1], tw)
                    offset = (f.tap_offset(h[1], th), f.tap_offset(x[1], tw))
                    part = filt[:, r, s, column0 : column0 + columns]
                    block = load.load(pixel(phase, row0, lower), offset, rows) @ part
                    result[:, : block.shape[1]] += block
            for sub in range(0, rows, store_rows):
                if row0 + sub < matrix_rows(phase):
                    store(phase, row0 + sub, column0, result[sub : sub + store_rows])
    return dx, writes


RUN, RUNS, SHIFTS = 15, 8, 4


def stem_dgrad(
    f: Formulas, w: Workload, dy: np.ndarray, filt: np.ndarray, *, chunk_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """(dx, how often each element was written) as stem_dgrad.cuh goes about it, lane by lane."""
    channels, columns = w.c, 16 * w.c
    lower_h, lower_w = f.lowest_shift(w.padding[0]), f.lowest_shift(w.padding[1])
    packed = np.zeros((SHIFTS, columns, w.k))
    for shift in range(SHIFTS):
        for column in range(columns):
            slot, a, b, c = f.stem_column(column, channels)
            r = f.shifted_position(w.padding[0], a, lower_h + SHIFTS - 1 - slot)
            s = f.shifted_position(w.padding[1], b, lower_w + shift)
            if 0 <= r < w.r and 0 <= s < w.s:
                packed[shift, column] = filt[:, r, s, c]

    def row_of_dy(n: int, strip: int, p: int) -> np.ndarray:
        out = np.zeros((RUN * RUNS + SHIFTS, w.k))
        for i in range(len(out)):
            q = strip * RUN * RUNS + lower_w + i
            if 0 <= p < w.p and 0 <= q < w.q:
                out[i] = dy[n, p, q]
        return out

    dx, writes = np.zeros((w.n, w.h, w.w, w.c)), np.zeros((w.n, w.h, w.w, w.c), int)
    rows, strips = -(-w.h // 2), -(-((w.w + 1) // 2) // (RUN * RUNS))
    chunks = -(-rows // chunk_rows)
    accumulators = np.zeros((2, 4, 32, 8 * channels))  # group, warp, lane
    for n, strip, row0, row1 in f.stem_items(w.n, strips, chunks, chunk_rows, rows):
        accumulators[:] = 0
        for p in range(row0 + lower_h, row1 + lower_h + SHIFTS - 1):
            pixels = row_of_dy(n, strip, p)
            complete = p - lower_h - (SHIFTS - 1)
            out = np.full((2, 2 * RUN * RUNS * channels), np.nan)
            for group in range(2):
                for warp in range(4):
                    d = accumulators[group, warp]
                    x = f.stem_run_column(group, warp)
                    _multiply(d, pixels, packed, x)
                    if complete >= row0:
                        _write_lane_outputs(f, d, out, x, channels)
                    moved = np.zeros_like(d)
                    for slot in range(SHIFTS - 1):
                        for c in range(channels):
                            for lower in range(2):
                                moved[:, f.stem_accumulator(slot, c, channels, lower)] = d[
                                    :, f.stem_accumulator(slot + 1, c, channels, lower)
                                ]
                    accumulators[group, warp] = moved
            if complete >= row0:
                column = strip * 2 * RUN * RUNS
                count = min(2 * RUN * RUNS, w.w - column)
                for a in range(2):
                    if 2 * complete + a < w.h:
                        at = (n, 2 * complete + a, slice(column, column + count))
                        dx[at] += out[a, : count * channels].reshape(count, channels)
                        writes[at] += 1
    return dx, writes


def _multiply(d: np.ndarray, pixels: np.ndarray, packed: np.ndarray, x: int) -> None:
    """A warp's part of the wgmma of one row of dy: rows run (upper half), run (lower half)."""
    blocks = packed.shape[1] // 8
    for shift in range(SHIFTS):
        for lower in range(2):
            matrix = np.stack(
                [
                    # The 16th column of the last run is not part of a strip.
                    pixels[min(RUN * run + x + lower + shift, len(pixels) - 1)]
                    for run in range(RUNS)
                ]
            )
            product = matrix @ packed[shift].T
            for lane in range(32):
                for j in range(blocks):
                    for bit in range(2):
                        column = 8 * j + 2 * (lane % 4) + bit
                        d[lane, 4 * j + 2 * lower + bit] += product[lane // 4, column]


def _write_lane_outputs(f: Formulas, d: np.ndarray, out: np.ndarray, x: int, channels: int) -> None:
    for lane in range(32):
        run, phase_h, phase_w = lane >> 2, lane >> 1 & 1, lane & 1
        for lower in range(2):
            if x + lower >= RUN:
                continue
            for c in range(channels):
                at = (2 * (RUN * run + x + lower) + phase_w) * channels + c
                assert np.isnan(out[phase_h, at])
                out[phase_h, at] = d[lane, f.stem_accumulator(0, c, channels, lower)]


def stem_fprop(
    f: Formulas, w: Workload, x: np.ndarray, filt: np.ndarray, *, chunk_rows: int, strips: int
) -> tuple[np.ndarray, np.ndarray]:
    """(y, how often each element was written) as stem_fprop.cuh goes about it, lane by lane."""
    size = (w.r, w.s, w.c)
    steps = f.window_steps(*size)
    shift, lead = f.window_shift(w.padding[1], w.c), f.window_lead(w.padding[1], w.c)
    weights = np.zeros((w.k, 16 * steps))
    for k in range(16 * steps):
        if (at := f.window_weight(k, *size, lead)) >= 0:
            weights[:, k] = filt.reshape(w.k, -1)[:, at]
    flat = x.reshape(w.n, w.h, w.w * w.c)
    columns = (w.q + 16 * strips - 1) // (16 * strips) * 16
    row_elements = f.window_row_elements(columns, w.stride[1], w.padding[1], w.s, w.c)
    y, writes = np.zeros((w.n, w.p, w.q, w.k)), np.zeros((w.n, w.p, w.q, w.k), int)
    chunks = -(-w.p // chunk_rows)
    grid = (w.n, strips, chunks, chunk_rows, w.p, columns)
    for n, q0, p0, p1, input_rows in f.window_items(grid, w.stride[0], w.r):
        # The item's rows of x in a line, as the producer loads them; zeros outside.
        ring = np.zeros((input_rows, row_elements))
        first = (q0 * w.stride[1] - w.padding[1]) * w.c - shift
        assert first % 8 == 0  # the copy engine starts at 16-byte boundaries
        for i in range(input_rows):
            h = p0 * w.stride[0] - w.padding[0] + i
            for e in range(row_elements):
                if 0 <= h < w.h and 0 <= first + e < w.w * w.c:
                    ring[i, e] = flat[n, h, first + e]
        for p in range(p0, p1):
            top = (p - p0) * w.stride[0]
            operand = np.full((columns, 16 * steps), np.nan)
            for column in range(columns):
                for step in range(steps):
                    for upper in range(2):
                        for lane in range(4):
                            index = f.lane_pair(step, upper, lane)
                            r, e = f.window_pair(index, *size)
                            at = shift - lead + column * w.stride[1] * w.c + e
                            assert at % 2 == 0  # of 32-bit loads
                            k = 16 * step + 8 * upper + 2 * lane
                            operand[column, k : k + 2] = ring[top + r, at : at + 2]
            result = operand @ weights.T
            count = min(columns, w.q - q0)
            if count > 0:
                y[n, p, q0 : q0 + count] += result[:count]
                writes[n, p, q0 : q0 + count] += 1
    return y, writes


def stem_wgrad(
    f: Formulas, w: Workload, x: np.ndarray, dy: np.ndarray, *, chunk_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """(dw, how many accumulators each weight has) as stem_wgrad.cuh goes about it."""
    size = (w.r, w.s, w.c)
    pixel = w.stride[1] * w.c
    shift, lead = f.window_shift(w.padding[1], w.c), f.window_lead(w.padding[1], w.c)
    strips, columns = f.wgrad_strips(w.q, w.stride[1], w.padding[1], w.s, w.c)
    row_elements = f.window_row_elements(columns, w.stride[1], w.padding[1], w.s, w.c)
    elements, rows, at = _window_operand(f, size, pixel, shift - lead)
    flat = x.reshape(w.n, w.h, w.w * w.c)
    sums = np.zeros((len(elements), w.k))
    grid = (w.n, strips, -(-w.p // chunk_rows), chunk_rows, w.p, columns)
    for n, q0, p0, p1, input_rows in f.window_items(grid, w.stride[0], w.r):
        first = (q0 * w.stride[1] - w.padding[1]) * w.c - shift
        assert first % 8 == 0  # the copy engine starts at 16-byte boundaries
        ring = np.zeros((input_rows, row_elements))
        for i in range(input_rows):
            h = p0 * w.stride[0] - w.padding[0] + i
            low, high = max(0, first), min(w.w * w.c, first + row_elements)
            if 0 <= h < w.h and low < high:
                ring[i, low - first : high - first] = flat[n, h, low:high]
        for p in range(p0, p1):
            tile = np.zeros((columns, w.k))  # zeros beyond the last pixel
            there = max(0, min(columns, w.q - q0))
            tile[:there] = dy[n, p, q0 : q0 + there]
            top = (p - p0) * w.stride[0]
            for step in range(columns // 16):
                matrix = ring[top + rows[:, None], at + 16 * step * pixel]
                sums += matrix @ tile[16 * step : 16 * step + 16]
    dw, found = np.zeros((w.k, w.r * w.s * w.c)), np.zeros(w.r * w.s * w.c, int)
    for element, row in zip(elements, sums, strict=True):
        if (weight := f.window_weight(int(element), *size, lead)) >= 0:
            dw[:, weight] += row
            found[weight] += 1
    return dw.reshape(w.k, w.r, w.s, w.c), found


def _window_operand(
    f: Formulas, size: tuple[int, int, int], pixel: int, first: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the rows of the first operand are: (elements, filter rows, places in a row of x of 16
    pixels), from the registers of every lane and wgmma's layout of them."""
    count = 64 * f.wgrad_tiles(*size)
    elements, rows = np.full(count, -1), np.full(count, -1)
    at = np.full((count, 16), -1)
    for tile in range(count // 64):
        for warp in range(4):
            for lane in range(32):
                element = f.wgrad_element(tile, warp, lane)
                row, start = f.wgrad_place(element, *size)
                words = [first + start + f.wgrad_pixel(lane, i) * pixel for i in range(4)]
                assert all(word % 2 == 0 for word in words)  # 32-bit loads
                # Registers 0 and 1 are made of words 0 and 1, 2 and 3 of words 2 and 3: the lower
                # halves are this lane's upper row of wgmma, the upper halves the one 8 below.
                for half in range(2):
                    m = 64 * tile + 16 * warp + lane // 4 + 8 * half
                    elements[m], rows[m] = element + half, row
                    for i, word in enumerate(words):
                        k = 2 * (lane % 4) + i % 2 + 8 * (i // 2)
                        at[m, k] = word + half
    assert elements.min() >= 0 and at.min() >= 0
    return elements, rows, at


def brute_force_wgrad(w: Workload, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """dw by definition."""
    dw = np.zeros((w.k, w.r, w.s, w.c))
    for p, q, r, s, h, column in products(w):
        dw[:, r, s] += dy[:, p, q].T @ x[:, h, column]
    return dw


def brute_force_fprop(w: Workload, x: np.ndarray, filt: np.ndarray) -> np.ndarray:
    """y by definition."""
    y = np.zeros((w.n, w.p, w.q, w.k))
    for p, q, r, s, h, column in products(w):
        y[:, p, q] += x[:, h, column] @ filt[:, r, s].T
    return y
