"""Read a lowered Relax function as ops and buffers.

Functions are read after ``CallTIRRewrite``: tensors are allocated one by one, kernels and external
functions are called with their outputs as the last arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from ..cost.native import moving_us, native_measurement
from ..errors import NotSchedulable
from ..graph.expr import dtype_of, op_name, shape_of
from ..graph.function import bindings_of, main_function, result_of, used_vars
from ..graph.slices import Slice, layout_call, slices_of, storage_of
from ..ir.device import Device
from ..ir.schedule_parts import Buffer, Occupancy, Op
from ..tir.loads import itemsize
from .kernels import NativeKernel, inspect


@dataclass(frozen=True)
class Storage:
    """A tensor that the function allocates, or is ``given`` as a parameter."""

    var: relax.Var
    shape: tuple[int, ...]
    dtype: str
    given: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape) * itemsize(self.dtype)

    @property
    def channels(self) -> int:
        """Elements of the last axis."""
        return self.shape[-1] if self.shape else 1


@dataclass(frozen=True)
class _Access:
    """Channels of a storage, from ``begin`` to before ``end``, that an op reads or writes."""

    op: int
    begin: int
    end: int

    def meets(self, other: _Access) -> bool:
        return self.begin < other.end and other.begin < self.end


@dataclass
class Program:
    """A function's calls in program order and what they touch.

    ``ops`` carry names, kinds, occupancies and dependences; durations are estimates until
    :mod:`durations` fills them in. ``calls[i]`` is the call of op i, ``moved[i]`` how many bytes
    it reads and writes.
    """

    name: str
    func: relax.Function
    ops: list[Op] = field(default_factory=list)
    calls: list[relax.Call] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)  # of the storages that do not escape
    slices: dict[relax.Var, Slice] = field(default_factory=dict)  # tensors that lie in others
    definitions: dict[relax.Var, relax.Expr] = field(default_factory=dict)

    @property
    def sliced(self) -> list[relax.Var]:
        """The tensors that calls take and that lie in others, in order of first use."""
        taken = dict.fromkeys(v for call in self.calls for arg in call.args for v in used_vars(arg))
        return [var for var in taken if var in self.slices]


def read(mod: tvm.IRModule, device: Device) -> Program:
    """The main function of a module as a program.

    Raises NotSchedulable for calls whose effects are unknown, UnsupportedOp for control flow and
    DynamicShape for tensors of unknown size.
    """
    gv, func = main_function(mod)
    return _Reader(mod, gv.name_hint, func, device).read()


class _Reader:
    def __init__(self, mod: tvm.IRModule, name: str, func: relax.Function, device: Device) -> None:
        self._mod, self._device = mod, device
        self._program = Program(name, func, slices=slices_of(func))
        self._storage_of: dict[relax.Var, int] = {}  # allocation or view -> storage
        self._natives: dict[str, NativeKernel] = {}
        self._writers: list[list[_Access]] = []
        self._readers: list[list[_Access]] = []
        self._last_host_workspace: int | None = None
        self._inputs: set[int] = set()  # storages of parameters, which kernels may update in place

    def read(self) -> Program:
        program = self._program
        for param in program.func.params:
            if isinstance(param.ty, relax.TensorType):
                self._inputs.add(self._new_storage(param))
        for binding in bindings_of(program.func):
            self._visit(binding.var, binding.value)
        escaping = self._inputs | {
            self._storage(v) for v in used_vars(self._resolve(result_of(program.func)))
        }
        for i, storage in enumerate(program.storages):
            if i not in escaping and self._writers[i] and not storage.given:
                program.buffers.append(
                    Buffer(
                        storage.var.name,
                        0,
                        storage.size,
                        tuple(dict.fromkeys(access.op for access in self._writers[i])),
                        tuple(dict.fromkeys(access.op for access in self._readers[i])),
                    )
                )
        return program

    def _visit(self, var: relax.Var, value: relax.Expr) -> None:
        name = op_name(value)
        if name == "relax.builtin.alloc_tensor":
            whole, *_ = storage_of(var, self._program.slices)
            if whole not in self._storage_of:  # a part may come first
                self._new_storage(whole)
            self._storage_of[var] = self._storage_of[whole]
        elif layout_call(value) is not None:
            pass  # its parts are written and read where they lie
        elif name == "relax.reshape":
            source = self._resolve(value.args[0])
            self._program.definitions[var] = relax.Call(
                value.op, [source, *value.args[1:]], value.attrs, ty_args=value.ty_args
            )
            if (storage := self._storage(source)) is not None:
                self._storage_of[var] = storage
        elif isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem)) or not isinstance(
            value, relax.Call
        ):
            self._program.definitions[var] = self._resolve(value)
        elif isinstance(value.op, (tvm.ir.GlobalVar, relax.ExternFunc)):
            self._call(value)
        else:
            raise NotSchedulable(f"a call of {name or value.op}", "kernels and external functions")

    def _new_storage(self, var: relax.Var) -> int:
        number = len(self._program.storages)
        self._storage_of[var] = number
        self._program.storages.append(Storage(var, shape_of(var), dtype_of(var)))
        self._writers.append([])
        self._readers.append([])
        return number

    def _resolve(self, expr: relax.Expr) -> relax.Expr:
        """Resolve ``expr`` through expressions without storage of their own: aliases and tuple
        items."""
        if isinstance(expr, relax.Var):
            known = self._program.definitions.get(expr)
            return known if known is not None and not isinstance(known, relax.Call) else expr
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._resolve(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            whole = self._resolve(expr.tuple_value)
            if isinstance(whole, relax.Tuple):
                return whole.fields[expr.index]
            return relax.TupleGetItem(whole, expr.index)
        return expr

    def _storage(self, expr: relax.Expr) -> int | None:
        return self._storage_of.get(expr) if isinstance(expr, relax.Var) else None

    def _call(self, call: relax.Call) -> None:
        program, op = self._program, len(self._program.ops)
        native = self._native(call)
        symbol = call.op.name_hint if native else str(call.op.global_symbol)
        args = [self._resolve(arg) for arg in call.args]
        moved = native.moved if native else _bytes(args)
        depends = self._order(self._touched(op, args, native))
        if native and native.host_workspace:
            if self._last_host_workspace is not None:
                depends.add(self._last_host_workspace)
            self._last_host_workspace = op
        new = Op(
            name=f"{symbol}#{op}",
            symbol=symbol,
            kind="native" if native else "offloaded",
            duration_us=moving_us(moved, self._device),
            occupancy=native.occupancy if native else Occupancy(),
            depends=tuple(sorted(depends)),
        )
        if native:
            new = new.timed(native_measurement(native.duration_us, self._device))
        program.ops.append(new)
        program.calls.append(relax.Call(call.op, args, call.attrs, ty_args=call.ty_args))
        program.moved.append(moved)

    def _touched(
        self, op: int, args: Sequence[relax.Expr], native: NativeKernel | None
    ) -> dict[tuple[int, _Access], bool]:
        """Return the channels of storages that a call takes, and whether it writes them."""
        touched: dict[tuple[int, _Access], bool] = {}
        for i, arg in enumerate(args):
            for var in used_vars(arg):
                storage = self._storage(var)
                if storage is None:
                    continue
                access = self._access(op, var, storage)
                known = any(map(access.meets, self._writers[storage]))
                fresh = not known and storage not in self._inputs
                written = fresh or bool(native and i in native.written)
                key = (storage, access)
                touched[key] = touched.get(key, False) or written
        return touched

    def _access(self, op: int, var: relax.Var, storage: int) -> _Access:
        if var not in self._program.slices:  # views of all of it have rows of other lengths
            return _Access(op, 0, self._program.storages[storage].channels)
        _, begin, end = storage_of(var, self._program.slices)
        return _Access(op, begin, end)

    def _order(self, touched: Mapping[tuple[int, _Access], bool]) -> set[int]:
        """Return the ops that must be over before these accesses, and note them."""
        depends: set[int] = set()
        for (storage, access), written in touched.items():
            before = [*self._writers[storage], *(self._readers[storage] if written else ())]
            depends.update(earlier.op for earlier in before if earlier.meets(access))
        for (storage, access), written in touched.items():
            (self._writers if written else self._readers)[storage].append(access)
        return depends

    def _native(self, call: relax.Call) -> NativeKernel | None:
        if isinstance(call.op, relax.ExternFunc):
            if str(call.op.global_symbol).startswith("vm.builtin"):
                raise NotSchedulable(f"a call of {call.op.global_symbol}", "kernels")
            return None
        name = call.op.name_hint
        if name not in self._natives:
            callee = self._mod[call.op]
            if not isinstance(callee, tvm.tirx.PrimFunc):
                raise NotSchedulable(f"a call of the Relax function {name}", "kernels")
            self._natives[name] = inspect(callee, self._device)
        return self._natives[name]


def _bytes(args: Sequence[relax.Expr]) -> int:
    """Return the bytes of all tensors among the arguments."""
    tensors = [arg for arg in args if isinstance(arg.ty, relax.TensorType)]
    return sum(math.prod(shape_of(arg)) * itemsize(dtype_of(arg)) for arg in tensors)
