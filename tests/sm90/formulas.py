"""The kernels' own index arithmetic, compiled from their headers with the C++ compiler."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from convoy import paths

_SOURCE = Path(__file__).with_name("formulas.cc")


class Formulas:
    """Functions of the headers that hold index arithmetic; structs become tuples."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.tile_blocks_of.restype = ctypes.c_longlong

    def _fill(self, function: str, count: int, *arguments: int) -> tuple[int, ...]:
        out = (ctypes.c_int * count)()
        getattr(self._library, function)(*arguments, out)
        return tuple(out)

    def phase_axis(self, size: int, filter_size: int, stride: int, pad: int, phase: int):
        """(extent, taps, first, lower)."""
        return self._fill("phase_axis_of", 4, size, filter_size, stride, pad, phase)

    def quotient(self, dividend: int, divisor: int) -> int:
        return self._library.quotient_of(dividend, divisor)

    def filter_position(self, first: int, stride: int, t: int) -> int:
        return self._library.filter_position_of(first, stride, t)

    def tap_offset(self, taps: int, t: int) -> int:
        return self._library.tap_offset_of(taps, t)

    def tiles(self, kind: int, phases: int, rows: int, columns: int, most_blocks: int):
        """Tiles (phase, m, n) in the order of each block: a list for each block."""
        order = (kind, phases, rows, columns)
        blocks = min(most_blocks, self._library.tile_blocks_of(*order))
        found = []
        for block in range(blocks):
            tiles, out, step = [], (ctypes.c_int * 3)(), 0
            while self._library.tile_of(*order, step, block, blocks, out):
                tiles.append(tuple(out))
                step += 1
            found.append(tiles)
        return found

    def lowest_shift(self, pad: int) -> int:
        return self._library.lowest_shift_of(pad)

    def shifted_position(self, pad: int, phase: int, shift: int) -> int:
        return self._library.shifted_position_of(pad, phase, shift)

    def stem_column(self, column: int, channels: int):
        """(slot, phase_h, phase_w, c)."""
        return self._fill("stem_column_of", 4, column, channels)

    def stem_accumulator(self, slot: int, c: int, channels: int, lower_row: int) -> int:
        return self._library.stem_accumulator_of(slot, c, channels, lower_row)

    def stem_run_column(self, group: int, warp: int) -> int:
        return self._library.stem_run_column_of(group, warp)

    def stem_items(self, images: int, strips: int, chunks: int, chunk_rows: int, rows: int):
        """(n, strip, row0, row1) of all items."""
        grid = (images, strips, chunks, chunk_rows, rows)
        count = self._library.stem_items_of(*grid)
        return [self._fill("stem_item_of", 4, *grid, index) for index in range(count)]

    def window_steps(self, filter_h: int, filter_w: int, channels: int) -> int:
        return self._library.window_steps_of(filter_h, filter_w, channels)

    def window_pair(self, index: int, filter_h: int, filter_w: int, channels: int):
        """(filter row, first element)."""
        return self._fill("window_pair_of", 2, index, filter_h, filter_w, channels)

    def lane_pair(self, step: int, upper: int, lane: int) -> int:
        return self._library.lane_pair_of(step, upper, lane)

    def window_shift(self, pad_left: int, channels: int) -> int:
        return self._library.window_shift_of(pad_left, channels)

    def window_lead(self, pad_left: int, channels: int) -> int:
        return self._library.window_lead_of(pad_left, channels)

    def window_row_elements(
        self, columns: int, stride_w: int, pad_left: int, filter_w: int, channels: int
    ) -> int:
        return self._library.window_row_elements_of(columns, stride_w, pad_left, filter_w, channels)

    def window_weight(self, k: int, filter_h: int, filter_w: int, channels: int, lead: int) -> int:
        return self._library.window_weight_of(k, filter_h, filter_w, channels, lead)

    def window_items(self, grid: tuple[int, ...], stride_h: int, filter_h: int):
        """(n, q0, p0, p1, input rows) of all items of (images, strips, chunks, chunk_rows, rows,
        strip_columns)."""
        count = self._library.window_items_of(*grid)
        return [self._fill("window_item_of", 5, *grid, stride_h, filter_h, i) for i in range(count)]

    def wgrad_tiles(self, filter_h: int, filter_w: int, channels: int) -> int:
        return self._library.wgrad_tiles_of(filter_h, filter_w, channels)

    def wgrad_element(self, tile: int, warp: int, lane: int) -> int:
        return self._library.wgrad_element_of(tile, warp, lane)

    def wgrad_pixel(self, lane: int, i: int) -> int:
        return self._library.wgrad_pixel_of(lane, i)

    def wgrad_place(self, element: int, filter_h: int, filter_w: int, channels: int):
        """(filter row, element counted from the row's first pair)."""
        return self._fill("wgrad_place_of", 2, element, filter_h, filter_w, channels)

    def wgrad_strips(self, q: int, stride_w: int, pad_left: int, filter_w: int, channels: int):
        """(strips, columns of a strip)."""
        return self._fill("wgrad_strips_of", 2, q, stride_w, pad_left, filter_w, channels)

    def halo_tile(self, shape: tuple[int, ...], images: int, rows: int):
        """(width, height, images, pitch, rows, across, down)."""
        return self._fill("halo_tile_of", 7, (ctypes.c_int * 13)(*shape), images, rows)

    def halo_origin(self, tile: tuple[int, ...], number: int):
        """(n, h, w) of the first output of a tile."""
        return self._fill("halo_origin_of", 3, (ctypes.c_int * 7)(*tile), number)

    def halo_pixel(self, tile: tuple[int, ...], shape: tuple[int, ...], number: int, row: int):
        structs = (ctypes.c_int * 7)(*tile), (ctypes.c_int * 13)(*shape)
        return self._library.halo_pixel_of(*structs, number, row)

    def halo_position(self, tile: tuple[int, ...], shape: tuple[int, ...], row: int, tap: int):
        structs = (ctypes.c_int * 7)(*tile), (ctypes.c_int * 13)(*shape)
        return self._library.halo_position_of(*structs, row, tap)

    def small_conv_pixel(self, shape: tuple[int, ...], pixel: int):
        """(n, h, w) of a window's first element; ``shape`` as SmallConvShape."""
        return self._fill("small_conv_pixel_of", 3, (ctypes.c_int * 13)(*shape), pixel)

    def small_conv_step(self, shape: tuple[int, ...], step: int, chunk: int):
        """(tap, channel, offset_h, offset_w)."""
        return self._fill("small_conv_step_of", 4, (ctypes.c_int * 13)(*shape), step, chunk)

    def small_conv_steps(self, shape: tuple[int, ...], rank: int, slices: int):
        """(begin, end)."""
        return self._fill("small_conv_steps_of", 2, (ctypes.c_int * 13)(*shape), rank, slices)

    def small_conv_next(self, shape: tuple[int, ...], step: int, chunk: int):
        """What :meth:`small_conv_step` has for the step behind ``step``."""
        return self._fill("small_conv_next_of", 4, (ctypes.c_int * 13)(*shape), step, chunk)

    def image_conv_tile(self, axes: Sequence[ImageConvAxis], rows: int, groups: int, bytes_: int):
        """The axes of rows and columns with the tile that the kernel chooses."""
        both = (ImageConvAxis * 2)(*axes)
        self._library.image_conv_tile_of(both, rows, groups, ctypes.c_longlong(bytes_))
        return tuple(both)

    def image_conv_axis(self, axis: ImageConvAxis, tile: int) -> ImageConvAxis:
        found = ImageConvAxis.from_buffer_copy(axis)
        self._library.image_conv_axis_of(ctypes.byref(found), tile)
        return found

    def image_conv_place(self, axis: ImageConvAxis, number: int):
        """(first sum, first pixel, lowest, highest, whether it has all sums) of a tile."""
        return self._fill("image_conv_place_of", 5, ctypes.byref(axis), number)

    def image_conv_tap(self, axes: Sequence[ImageConvAxis], tap: int) -> int:
        return self._library.image_conv_tap_of((ImageConvAxis * 2)(*axes), tap)

    def image_conv_tap_in(self, place: int) -> int:
        """The tap in a place of the table."""
        return self._library.image_conv_tap_in_of(place)

    def image_conv_row(self, axes: Sequence[ImageConvAxis], m: int) -> int:
        return self._library.image_conv_row_of((ImageConvAxis * 2)(*axes), m)

    def expand_tile(self, shape: tuple[int, ...], blocks: tuple[int, int, int], pixels: int):
        """The tile that the kernel chooses, as ExpandTile; its width is 0 where there is none.

        Args:
            shape: As ExpandShape.
            blocks: Blocks of channels, units of a block, and blocks that the device holds.
            pixels: Of a chunk at most.
        """
        tile = (ctypes.c_int * 9)()
        self._library.expand_tile_of(_nine(shape), (ctypes.c_int * 3)(*blocks), pixels, tile)
        return tuple(tile)

    def expand_left(self, shape: tuple[int, ...], tile: tuple[int, ...], first: int) -> int:
        """First column of the input that a tile holds, whose first output is in a column."""
        return self._library.expand_left_of(*map(_nine, (shape, tile)), first)

    def expand_rows(self, shape: tuple[int, ...], first: int, height: int):
        """(first row of the first window, first row in the image, end) under rows of outputs."""
        return self._fill("expand_rows_of", 3, _nine(shape), first, height)

    def expand_tile_cost(self, shape: tuple[int, ...], tile: tuple[int, ...]) -> int:
        return self._library.expand_tile_cost_of(*map(_nine, (shape, tile)))


def _nine(fields: tuple[int, ...]) -> ctypes.Array[ctypes.c_int]:
    """An ExpandShape or ExpandTile."""
    return (ctypes.c_int * 9)(*fields)


class ImageConvAxis(ctypes.Structure):
    """As in image_conv_layout.cuh; the last four fields are of a tile."""

    _fields_ = [
        (name, ctypes.c_int)
        for name in (
            *("size", "outputs", "inputs", "window", "step", "before", "stride", "dilation"),
            *("pad", "taps", "tile", "sums", "pixels", "tiles"),
        )
    ]


@functools.cache
def load() -> Formulas:
    """Compiles and loads the headers; skips the test where there is no C++ compiler."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = Path(tempfile.mkdtemp(prefix="convoy-formulas-"))
    library = folder / "formulas.so"
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Werror", "-fPIC", "-shared"]
    command += [f"-I{paths.codegen_dir() / 'sm90'}", "-o", str(library), str(_SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    loaded = Formulas(ctypes.CDLL(str(library)))
    shutil.rmtree(folder)
    return loaded
