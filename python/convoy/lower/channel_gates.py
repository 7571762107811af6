"""Fuse the gates of channels with the kernel that multiplies an image by them.

The last product of a squeeze-and-excitation block is so small that each thread block of the
multiplication computes its own part of it sooner than a kernel would start (tir/channel_gate.py).
FuseOps keeps the two apart (:mod:`convoy.lower.spread`).
"""

from __future__ import annotations

import math
from typing import ClassVar

import tvm
from tvm import relax, s_tir, tirx

from ..graph.rewriter import Rewriter
from ..tir.builder import substituted
from ..tir.channel_gate import ChannelGate
from .tails import reduces_once

_CALL, _SCHEDULED = "relax.call_tir", "tirx.is_scheduled"


class FuseChannelGates(Rewriter):
    """Compute the gates that one kernel alone reads in that kernel."""

    infer_first: ClassVar[bool] = False
    ops: ClassVar[frozenset[str] | None] = frozenset({_CALL})

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[tuple[tirx.PrimFunc, tirx.PrimFunc, int], tirx.PrimFunc | None] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        self._mod = mod
        return super().__call__(mod)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        own = self._mod[call.args[0]]
        args, before = list(call.args[1].fields), list(old.args[1].fields)
        for place, arg in enumerate(args):
            made = self.producer(arg, _CALL)
            if made is None or self.uses[before[place]] != 1:
                continue
            func = self._fused(self._mod.functions.get(made.args[0]), own, place)
            if func is not None:
                name = f"{made.args[0].name_hint}_{call.args[0].name_hint.removeprefix('fused_')}"
                args = [*made.args[1].fields, *args[:place], *args[place + 1 :]]
                fused = [self.builder.add_func(func, name), relax.Tuple(args)]
                return relax.Call(call.op, fused, call.attrs, call.ty_args, call.span)
        return None

    def _fused(
        self, gates: tirx.PrimFunc | None, own: tirx.PrimFunc, place: int
    ) -> tirx.PrimFunc | None:
        """The kernel of two, if it is fast."""
        if gates is None or not _elements(gates.params[-1]) < _elements(own.params[-1]):
            return None
        scheduled = any(_SCHEDULED in (func.attrs or {}) for func in (gates, own))
        if scheduled or not reduces_once(gates):
            return None
        key = (gates, own, place)
        if key not in self._found:
            func = _together(gates, own, place)
            fits = ChannelGate().apply(func, tvm.target.Target.current(), False) is not None
            self._found[key] = func if fits else None
        return self._found[key]


def _elements(param: tirx.Var | tirx.Buffer) -> float:
    """Elements of a parameter; not a number for one that is no tensor of a known size."""
    shape = param.shape if hasattr(param.ty, "shape") else [param]
    known = all(isinstance(extent, tirx.IntImm) for extent in shape)
    return math.prod(map(int, shape)) if known else math.nan


def _together(first: tirx.PrimFunc, second: tirx.PrimFunc, place: int) -> tirx.PrimFunc:
    """A function of the parameters of both, but for the result of the first, which the second one
    reads as the parameter in that ``place``."""
    *params, between = first.params
    rest = [*second.params]
    read = rest.pop(place)
    inner = tirx.decl_buffer(between.shape, between.dtype, "gates")
    blocks = [
        substituted(func.body.block, {of: inner}) for func, of in ((first, between), (second, read))
    ]
    body = tirx.SeqStmt([block.body for block in blocks])
    buffers = [inner, *(buffer for block in blocks for buffer in block.alloc_buffers)]
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=buffers)
    realized = s_tir.SBlockRealize([], True, root)
    return tirx.PrimFunc([*params, *rest], realized, second.ret_type, attrs=second.attrs)
