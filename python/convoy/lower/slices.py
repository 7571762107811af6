"""Fuse slices with all kernels that read them.

FuseOps fuses a value with one kernel. A part of a tensor that several read (half of a gated unit,
the channels of a group) would be copied by a kernel of its own. Here each of its readers takes it
from the complete tensor.
"""

from __future__ import annotations

import math
from typing import ClassVar

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from ..graph.expr import op_name
from ..graph.function import bindings_of, main_function, result_of, used_vars
from ..graph.rewriter import Rewriter
from ..tir.loads import contiguous_in, loads_of
from .tails import BROADCAST, INJECTIVE, REDUCTION, fuse_as, kernels_of

_CALL = "relax.call_tir"
_PATTERN, _SCHEDULED = "op_pattern", "tirx.is_scheduled"

#: Values with the calls that read them.
Readers = dict[relax.Var, list[relax.Call]]


@tvm.transform.module_pass(opt_level=0, name="FuseSlices")
def fuse_slices(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
    """Fuse the slices of a module that FuseTIR made, as far as element-wise kernels alone read
    them; slices of slices in several rounds."""
    while slices := _slices(mod):
        readers = {call.args[0] for calls in slices.values() for call in calls}
        repeated = _ForEachReader(slices)
        mod = repeated(mod)
        # Marked as reductions, readers are fused with what they read and with nothing else.
        patterns = dict.fromkeys(readers, REDUCTION) | dict.fromkeys(repeated.functions, BROADCAST)
        mod = fuse_as(mod, patterns)
    return mod


def _slices(mod: tvm.IRModule) -> Readers:
    """Slices that several element-wise kernels read and nothing else does; not those of others of
    them, which are fused first."""
    _, func = main_function(mod)
    kernels = kernels_of(relax.transform.AnnotateTIROpPattern()(mod))
    readers: dict[relax.Var, list[relax.Expr]] = {}
    for binding in bindings_of(func):
        for var in set(used_vars(binding.value)):
            readers.setdefault(var, []).append(binding.value)
    for var in used_vars(result_of(func)):
        readers.setdefault(var, []).append(var)

    def kernel(call: relax.Expr) -> tirx.PrimFunc | None:
        return kernels[call.args[0]] if op_name(call) == _CALL else None

    found: Readers = {}
    for binding in bindings_of(func):
        calls, own = readers.get(binding.var, []), kernel(binding.value)
        if own is None or len(calls) < 2 or not _is_slice(own):
            continue
        reading = [kernel(call) for call in calls]
        inner = any(var in found for var in used_vars(binding.value))
        if not inner and all(f is not None and _is_elementwise(f) for f in reading):
            found[binding.var] = calls
    return found


class _ForEachReader(Rewriter):
    """Compute each of these values once for every call that reads it."""

    ops: ClassVar[frozenset[str] | None] = frozenset({_CALL})

    def __init__(self, values: Readers) -> None:
        super().__init__()
        self._of_readers = values
        #: What computes them.
        self.functions: set[tvm.ir.GlobalVar] = set()

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        own: dict[relax.Expr, relax.Expr] = {}
        for arg, before in zip(call.args[1].fields, old.args[1].fields, strict=True):
            if before in self._of_readers and arg not in own:
                own[arg] = self.emit(self.value_of[arg])
                self.functions.add(self.value_of[arg].args[0])
        if not own:
            return None
        args = relax.Tuple([own.get(arg, arg) for arg in call.args[1].fields])
        rest = [call.args[0], args, *call.args[2:]]
        return relax.Call(call.op, rest, call.attrs, call.ty_args, call.span)


def _is_slice(func: tirx.PrimFunc) -> bool:
    """Whether a kernel copies a part of one tensor, neighbours to neighbours."""
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, blocks.append)])
    steps = [block for block in blocks if block.iter_vars]
    if not steps or len(func.params) != 2 or not all(map(_copies_in_order, steps)):
        return False
    read, written = (math.prod(map(int, param.shape)) for param in func.params)
    is_view = read == written and relax.analysis.has_reshape_pattern(func)
    return not is_view


def _copies_in_order(block: s_tir.SBlock) -> bool:
    if not isinstance(block.body, tirx.BufferStore):
        return False
    last = block.iter_vars[-1].var
    is_copy = isinstance(block.body.value, tvm.ir.TensorLoad)
    return is_copy and all(contiguous_in(load, last) for load in loads_of(block))


def _is_elementwise(func: tirx.PrimFunc) -> bool:
    """Whether a kernel that has no schedule yet computes each element by itself."""
    attrs = func.attrs or {}
    return _SCHEDULED not in attrs and int(attrs.get(_PATTERN, REDUCTION)) <= INJECTIVE
