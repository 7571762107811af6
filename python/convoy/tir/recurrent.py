"""GPU kernel of all steps of an LSTM or GRU, written in CUDA (codegen/recurrent/recurrent.cuh)."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .. import paths
from ..ir.dtypes import HALF_DTYPES
from ..ops.recurrent import Recurrent
from ..source_text import expanded
from .builder import KERNEL

#: Hidden units that a cluster's registers and shared memory have room for.
_MOST_UNITS = 512
#: Sequences of a cluster are a multiple of this, and at most this many times as many.
_TILE, _MOST_TILES = 8, 4
#: SMs of an H200 that clusters fill at a time.
_SMS = 128

_C_TYPES = {"float16": "half", "bfloat16": "nv_bfloat16"}
_LEFT_OUT = re.compile(r"^#(pragma once|include <(?!cuda).*)$", re.MULTILINE)


def has_kernel(layer: Recurrent, dtype: str, arch: int) -> bool:
    """Return whether the kernel computes a layer in ``dtype`` on a GPU of compute capability
    ``arch / 10``: blocks must form clusters, with the shared memory that data centers' GPUs have.
    """
    return dtype in HALF_DTYPES and layer.hidden <= _MOST_UNITS and 90 <= arch < 120


@dataclass(frozen=True)
class Layout:
    """How the kernel divides a layer.

    Attributes:
        blocks: Of a cluster: more of them hold more weights, fewer exchange less.
        tiles: Groups of 8 sequences of a cluster: one while all clusters run at the same time.
        clusters: Of the launch.
        units: Of a block.
        shared_bytes: Of a block, as ``Layer::kSharedBytes``.
    """

    blocks: int
    tiles: int
    clusters: int
    units: int
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Of a block: a warp for each 4 units."""
        return 8 * self.units


def layout_of(layer: Recurrent) -> Layout:
    """Divide a layer."""
    blocks, tiles = 8 if layer.hidden > 64 else 4, 1
    most = _MOST_TILES if layer.hidden <= 256 else 2

    def clusters() -> int:
        return -(-layer.batch // (_TILE * tiles)) * layer.directions

    while tiles < most and clusters() * blocks > _SMS:
        tiles *= 2
    units = -(-layer.hidden // (8 * blocks)) * 8
    states = blocks * _TILE * tiles * (units + 8) * 2
    weights = units // 4 * max(0, units * blocks // 16 - 16) * 32 * 16
    return Layout(blocks, tiles, clusters(), units, 2 * states + weights + 16)


def recurrent_kernel(layer: Recurrent) -> tirx.PrimFunc:
    """(projected, weights, bias, states before the first step, outputs, states behind the last)."""
    gates = layer.directions * layer.gates * layer.hidden
    read = {"projected": layer.time * layer.batch * gates, "weights": gates * layer.hidden,
            "bias": gates}  # fmt: skip
    outputs, *last = (math.prod(shape) for shape in layer.results)
    read |= {f"state{i}": size for i, size in enumerate(last)}
    written = {"outputs": outputs} | {f"last{i}": size for i, size in enumerate(last)}
    layout = layout_of(layer)
    name, source = _device_function(layer, layout, list(read), list(written))
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("recurrent")
            T.func_attr(KERNEL)
            buffers = [
                T.arg(name, T.buffer((count,), layer.dtype))
                for name, count in (read | written).items()
            ]
            shared = T.sblock_alloc_buffer((layout.shared_bytes,), "uint8", scope="shared.dyn")
            with (
                T.thread_binding(0, layout.clusters * layout.blocks, thread="blockIdx.x"),
                T.thread_binding(0, layout.blocks, thread="clusterCtaIdx.x"),
                T.thread_binding(0, layout.threads, thread="threadIdx.x"),
            ):
                pointers = [*(T.address_of(buffer[0]) for buffer in buffers), shared.data]
                T.evaluate(cuda_func_call(name, *pointers, source_code=source, return_type="void"))
        return builder.get()


def _device_function(
    layer: Recurrent, layout: Layout, read: list[str], written: list[str]
) -> tuple[str, str]:
    """Name and source of a function of the operands and the block's shared memory."""
    element, cell = _C_TYPES[layer.dtype], {"lstm": "kLstm", "gru": "kGru"}[layer.cell]
    sizes = (layer.hidden, layout.blocks, layout.tiles)
    numbers = (*sizes, layer.time, layer.batch, int(layer.reversed))
    name = f"convoy_{layer.cell}_{element}_" + "_".join(map(str, numbers))
    params = [f"const {element}* {p}" for p in read] + [f"{element}* {p}" for p in written]
    # A GRU has no cell state.
    values = [*read, "nullptr"][:5] + [*written, "nullptr"][:3] + [layer.time, layer.batch]
    fields = ", ".join(map(str, [*values, int(layer.reversed)]))
    source = f"""#ifndef CONVOY_RECURRENT
#define CONVOY_RECURRENT
{_header()}
#endif
__forceinline__ __device__ void {name}({", ".join(params)}, unsigned char* shared) {{
  using namespace convoy::recurrent;
  using L = Layer<{element}, Cell::{cell}, {", ".join(map(str, sizes))}>;
  static_assert(32 * L::kWarps == {layout.threads} && L::kSharedBytes == {layout.shared_bytes});
  run<L>(Operands<{element}>{{{fields}}}, shared);
}}
"""
    return name, source


@functools.cache
def _header() -> str:
    """The kernel's header with those of the project that it includes; the standard library's are
    among what each source has."""
    text = "\n".join(expanded(paths.codegen_dir() / "recurrent" / "recurrent.cuh"))
    return _LEFT_OUT.sub("", text)
