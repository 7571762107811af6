"""Stem kernel libraries of ``codegen/sm90`` as plain data, and their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....errors import InvalidOption
from ....ir import fields as checks
from ..kernel import ELEMENT, SHORT, bool_literal
from .source import DTYPE, EXTENT, Sm90Library, source_text

#: Of stem_dgrad: largest filter and output channels.
LARGEST_STEM_FILTER = 7
LARGEST_STEM_K = 128
#: Of stem_fprop and stem_wgrad: filter rows, steps of 16 weights of an output channel, elements of
#: a row of x in a strip.
MOST_WINDOW_ROWS, MOST_WINDOW_STEPS, MOST_ROW_ELEMENTS = 11, 20, 1024
#: Of stem_wgrad: warpgroups that multiply on an SM.
MOST_WARPGROUPS = 6


@dataclass(frozen=True, order=True)
class StemDgradKernel(Sm90Library):
    """One instance of ``stem_dgrad.cuh``, compiled for a number of input channels (1 to 4)."""

    channels: int
    dtype: str = "float16"

    family: ClassVar[str] = "stem_dgrad"
    fields: ClassVar[Mapping[str, checks.Check]] = {
        "channels": checks.integer(1, 4),
        "dtype": DTYPE,
    }

    def __post_init__(self) -> None:
        self.check_fields()

    @property
    def name(self) -> str:
        return f"stem_dgrad_c{self.channels}_{SHORT[self.dtype]}"

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        return source_text(
            self, "StemConfig", [ELEMENT[self.dtype], str(self.channels)], "StemDgrad"
        )


@dataclass(frozen=True, order=True)
class StemFpropKernel(Sm90Library):
    """One instance of ``stem_fprop.cuh``, compiled for input channels (1 to 4) and filter size.

    Takes a bias or none; ``relu`` is compiled in.
    """

    channels: int
    filter_h: int
    filter_w: int
    relu: bool = False
    dtype: str = "float16"

    family: ClassVar[str] = "stem_fprop"
    fields: ClassVar[Mapping[str, checks.Check]] = {
        "channels": checks.integer(1, 4),
        "filter_h": EXTENT,
        "filter_w": EXTENT,
        "relu": checks.boolean,
        "dtype": DTYPE,
    }

    def __post_init__(self) -> None:
        self.check_fields()
        _check_window(self.filter_h, self.filter_w, self.channels)

    @property
    def name(self) -> str:
        relu = "_relu" if self.relu else ""
        size = f"{self.filter_h}x{self.filter_w}x{self.channels}"
        return f"stem_fprop_{size}{relu}_{SHORT[self.dtype]}"

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        sizes = map(str, (self.channels, self.filter_h, self.filter_w))
        arguments = [ELEMENT[self.dtype], *sizes, bool_literal(self.relu)]
        return source_text(self, "WindowConfig", arguments, "StemFprop")


@dataclass(frozen=True, order=True)
class StemWgradKernel(Sm90Library):
    """One instance of ``stem_wgrad.cuh``, compiled for input channels (1 to 4), filter size and
    horizontal stride.

    parts   sets of warpgroups that take rows of dy in turn
    blocks  blocks of an SM: 1 or 2
    group   most steps of 16 pixels whose operands a thread holds at once
    ahead   threads read the next group while the tensor cores work on one
    depth   most rows of dy in shared memory; fewer if they do not fit

    Raises InvalidOption for fields that the kernel cannot be compiled with.
    """

    channels: int
    filter_h: int
    filter_w: int
    stride_w: int
    parts: int = 1
    blocks: int = 1
    group: int = 8
    ahead: bool = False
    depth: int = 5
    dtype: str = "float16"

    family: ClassVar[str] = "stem_wgrad"
    fields: ClassVar[Mapping[str, checks.Check]] = {
        "channels": checks.integer(1, 4),
        **dict.fromkeys(("filter_h", "filter_w", "stride_w", "parts", "blocks"), EXTENT),
        "group": checks.integer(1, 8),
        "ahead": checks.boolean,
        "depth": EXTENT,
        "dtype": DTYPE,
    }

    def __post_init__(self) -> None:
        self.check_fields()
        _check_window(self.filter_h, self.filter_w, self.channels)
        if self.stride_w * self.channels % 2:
            raise InvalidOption(
                f"stride {self.stride_w} with {self.channels} channels", "an even product"
            )
        if self.blocks > 2 or self.parts > most_parts(self.tiles, self.blocks):
            raise InvalidOption(
                f"{self.parts} parts in {self.blocks} blocks",
                f"1 or 2 blocks with together at most {MOST_WARPGROUPS} times 64 elements",
            )
        if not self.parts < self.depth <= 16:
            raise InvalidOption(f"{self.depth} rows of dy", f"{self.parts + 1} to 16")

    @property
    def tiles(self) -> int:
        """Warpgroups that share a window, 64 elements each."""
        return wgrad_tiles(self.filter_h, self.filter_w, self.channels)

    @property
    def name(self) -> str:
        size = f"{self.filter_h}x{self.filter_w}x{self.channels}s{self.stride_w}"
        ahead = "_ahead" if self.ahead else ""
        schedule = f"parts{self.parts}_blocks{self.blocks}_group{self.group}{ahead}_{self.depth}"
        return f"stem_wgrad_{size}_{schedule}_{SHORT[self.dtype]}"

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        sizes = (self.channels, self.filter_h, self.filter_w, self.stride_w)
        schedule = (self.parts, self.blocks, self.group)
        arguments = [ELEMENT[self.dtype], *map(str, sizes + schedule)]
        arguments += [bool_literal(self.ahead), str(self.depth)]
        return source_text(self, "StemWgradConfig", arguments, "StemWgrad", workspace=True)


def _check_window(filter_h: int, filter_w: int, channels: int) -> None:
    """Check the filter window of stem_fprop or stem_wgrad."""
    steps = window_steps(filter_h, filter_w, channels)
    if filter_h > MOST_WINDOW_ROWS or steps > MOST_WINDOW_STEPS:
        raise InvalidOption(
            f"a filter of {filter_h}x{filter_w}x{channels}",
            f"at most {MOST_WINDOW_ROWS} rows and {MOST_WINDOW_STEPS * 16} weights",
        )


def wgrad_tiles(filter_h: int, filter_w: int, channels: int) -> int:
    """Tiles of 64 elements that stem_wgrad makes of a window."""
    return -(-filter_h * window_quads(filter_w, channels) // 8)


def most_parts(tiles: int, blocks: int) -> int:
    """Most parts of a kernel with that many tiles and blocks of an SM; 0: none fit."""
    return MOST_WARPGROUPS // (tiles * blocks)


def window_quads(filter_w: int, channels: int) -> int:
    """Groups of 8 elements that stem_fprop and stem_wgrad read for a filter row."""
    return (filter_w * channels + channels % 2 + 7) // 8


def window_steps(filter_h: int, filter_w: int, channels: int) -> int:
    """Steps of stem_fprop's reduction, 16 elements each."""
    return -(-filter_h * window_quads(filter_w, channels) // 2)


def window_row_elements(
    columns: int, stride_w: int, pad_left: int, filter_w: int, channels: int
) -> int:
    """Elements of a row of x that both load for that many output columns."""
    shift = -pad_left * channels % 8
    quads = window_quads(filter_w, channels)
    return shift - shift % 2 + (columns - 1) * stride_w * channels + 8 * quads
