"""GPU kernel for the scale and shift of each channel of a group norm, from :mod:`.group_sums`."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .block_sums import add, add_up, clear, threads, turns
from .builder import KERNEL

_THREADS = 256


@dataclass(frozen=True)
class GroupAffine:
    """The factor of each channel, and the term that is added, from ``chunks`` partial sums of each
    group of ``size`` elements: (images, groups, chunks, columns), as ``partial_shape`` has them."""

    images: int
    groups: int
    chunks: int
    columns: int
    channels: int
    size: int
    epsilon: float

    @property
    def partial_shape(self) -> tuple[int, int, int, int]:
        return self.images, self.groups, self.chunks, self.columns

    def of(
        self, total: Expr, squares: Expr, pivot: Expr | None, gamma: Expr, beta: Expr
    ) -> tuple[Expr, Expr]:
        """Of a channel, from the sums of its group."""
        mean, square = (x * tirx.const(1.0 / self.size, "float32") for x in (total, squares))
        variance = tirx.max(square - mean * mean, tirx.const(0.0, "float32"))
        scale = tirx.rsqrt(variance + tirx.const(self.epsilon, "float32")) * gamma
        return scale, beta - (mean if pivot is None else mean + pivot) * scale


def affine_kernel(affine: GroupAffine) -> tirx.PrimFunc:
    """(partial sums, gamma, beta, scale, shift), the last two (images, channels) in float32; a
    block for each group of an image."""
    members = affine.channels // affine.groups
    block = 1 << (max(32, min(_THREADS, max(affine.chunks, members))) - 1).bit_length()
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("group_affine")
            T.func_attr(KERNEL)
            partial = T.arg("partial", T.buffer(affine.partial_shape, "float32"))
            gamma, beta = (T.arg(n, T.buffer((affine.channels,), "float32")) for n in ("g", "b"))
            outs = [
                T.arg(n, T.buffer((affine.images, affine.channels), "float32"))
                for n in ("scale", "shift")
            ]
            shared = T.sblock_alloc_buffer((2, block, 1), "float32", scope="shared")
            mine = T.sblock_alloc_buffer((2, 1), "float32", scope="local")
            with (
                T.thread_binding(0, affine.images, thread="blockIdx.x") as image,
                T.thread_binding(0, affine.groups, thread="blockIdx.y") as group,
            ):
                with threads(block) as thread:
                    clear(mine)
                    for at in turns(thread, affine.chunks, block):
                        for which in range(2):
                            add(mine, [which, 0], partial[image, group, at, which])
                    for which in range(2):
                        T.buffer_store(shared, mine[which, 0], [which, thread, 0])
                add_up(shared, block, 1, block)
                with threads(block) as thread:
                    pivot = partial[image, group, 0, 2] if affine.columns > 2 else None
                    for at in turns(thread, members, block):
                        channel = group * members + at
                        found = affine.of(
                            shared[0, 0, 0], shared[1, 0, 0], pivot, gamma[channel], beta[channel]
                        )
                        for out, value in zip(outs, found, strict=True):
                            T.buffer_store(out, value, [image, channel])
        return builder.get()
