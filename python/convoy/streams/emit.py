"""Emit a schedule as a Relax program: storage in an arena, stream and event calls.

For several streams the function becomes one call of ``convoy.streams.run`` around a body that
calls, in launch order, kernels, ``convoy.streams.on`` (stream, events to wait for) and
``convoy.streams.record``. The arena is allocated once for each instance of the virtual machine and
all tensors in it are made then, so that a run allocates nothing but its results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax
from tvm.relax.op import builtin, memory

from ..graph.expr import dtype_of
from ..graph.slices import storage_of
from ..ir.schedule import Schedule
from ..ir.schedule_parts import ORIGIN
from ..tir.loads import itemsize
from .program import Program

BODY, STORAGE = "convoy_body", "convoy_storage"
_NOTHING = relax.TupleType([])
#: Attributes of functions beside the main one; its own (a symbol, say) are not theirs.
_INNER = tvm.ir.make_node("ir.DictAttrs", **{"relax.force_pure": True})


def emit(
    mod: tvm.IRModule,
    program: Program,
    schedule: Schedule,
    cached: bool = True,
    number: int = 0,
) -> tvm.IRModule:
    """The module with its main function replaced.

    ``cached`` keeps the arena for each instance of the virtual machine, for which TVM's CUDA
    runtime is needed; without it every call allocates one. ``number`` tells the functions and the
    arena from those of other programs in one executable.
    """
    end = f"_{number}" if number else ""
    builder = relax.BlockBuilder(mod)
    main = mod.get_global_var(program.name)
    writer = _Writer(program, schedule, builder)
    storage = writer.storage_function()
    storage_var = builder.add_func(storage, STORAGE + end) if storage is not None else None
    body = writer.body_function(storage_var, number if cached else None)
    if schedule.streams == 1:
        builder.update_func(main, body)
    else:
        builder.update_func(main, _wrapper(program, builder.add_func(body, BODY + end)))
    return tvm.IRModule(builder.get().functions, attrs=mod.attrs)


def _wrapper(program: Program, body: tvm.ir.GlobalVar) -> relax.Function:
    func = program.func
    params = [relax.Var(p.name, p.ty) for p in func.params]
    call = relax.op.call_builtin_with_ctx(
        "convoy.streams.run", [body, *params], ty_args=[func.ret_ty]
    )
    result = relax.Var("result", func.ret_ty)
    block = relax.BindingBlock([relax.VarBinding(result, call)])
    return relax.Function(
        params, relax.SeqExpr([block], result), func.ret_ty, func.is_pure, func.attrs
    )


class _Writer:
    def __init__(self, program: Program, schedule: Schedule, builder: relax.BlockBuilder) -> None:
        self._program, self._schedule, self._builder = program, schedule, builder
        by_name = {op.name: i for i, op in enumerate(program.ops)}
        self._order = [by_name[op.name] for op in schedule.ops]
        offsets = {b.name: b.offset for b in schedule.memory.buffers}
        inside = {s.var: s for s in program.storages if s.var.name in offsets}
        #: Tensors in the arena: allocations, and what lies in them.
        self._inside = [(s.var, offsets[s.var.name]) for s in inside.values()]
        for var in program.sliced:
            whole, begin, _ = storage_of(var, program.slices)
            if whole in inside:
                offset = offsets[whole.name] + begin * itemsize(dtype_of(var))
                self._inside.append((var, offset))
        self._bindings: list[relax.VarBinding] = []
        self._known: dict[relax.Var, relax.Expr] = {}

    def storage_function(self) -> relax.Function | None:
        """Makes the arena and gives the tensors in it; None if nothing is to be stored."""
        if not self._inside:
            return None
        self._bindings = []
        size = relax.ShapeExpr([max(1, self._schedule.memory.peak_bytes)])
        storage = self._bind(
            "storage", memory.alloc_storage(size, 0, "global", "uint8"), relax.AnyType()
        )
        arena_type = relax.TensorType(size, "uint8")
        arena = self._bind("arena", memory.alloc_tensor(storage, 0, size, "uint8"), arena_type)
        views = []
        for var, offset in self._inside:
            views.append(self._bind(var.name, self._view(arena, offset, var), var.ty))
        ty = relax.TupleType([view.ty for view in views])
        result = self._bind("tensors", relax.Tuple(views), ty)
        return self._function([], result, ty, _INNER)

    def body_function(self, storage: tvm.ir.GlobalVar | None, cache: int | None) -> relax.Function:
        func = self._program.func
        self._bindings = []
        params = [relax.Var(p.name, p.ty) for p in func.params]
        self._known = dict(zip(func.params, params, strict=True))
        if storage is not None:
            self._open_arena(storage, cache)
        self._emit_calls()
        result = self._renamed(func.body.body if hasattr(func.body, "body") else func.body)
        if not isinstance(result, relax.Var):
            result = self._bind("result", result, func.ret_ty)
        attrs = func.attrs if self._schedule.streams == 1 else _INNER  # of main, or of a body
        return self._function(params, result, func.ret_ty, attrs)

    def _open_arena(self, storage: tvm.ir.GlobalVar, cache: int | None) -> None:
        ty = relax.TupleType([var.ty for var, _ in self._inside])
        if cache is not None:
            call = relax.op.call_builtin_with_ctx(
                "vm.builtin.cuda_graph.get_cached_alloc", [storage, _int(cache)], ty_args=[ty]
            )
        else:
            call = relax.Call(storage, [])
        tensors = self._bind("tensors", call, ty)
        for i, (var, _) in enumerate(self._inside):
            self._known[var] = relax.TupleGetItem(tensors, i)

    def _view(self, memory: relax.Expr, offset: int, var: relax.Var) -> relax.Call:
        """A tensor at a byte offset of another one."""
        dtype = tvm.ir.GenericConst(tvm.DataType(dtype_of(var)), relax.AnyType())
        args = [memory, _int(offset), var.ty.shape, dtype]
        if (own := self._program.slices.get(var)) is None:
            return _packed("convoy.streams.view", args, var.ty)
        return _packed("convoy.streams.slice", [*args, _int(own.row_stride)], var.ty)

    def _emit_calls(self) -> None:
        numbers: dict[int, int] = {}  # op -> its event
        for event in self._schedule.events:
            numbers.setdefault(event.record, len(numbers))
        waits: dict[int, list[int]] = {}
        for event in self._schedule.events:
            waits.setdefault(event.wait, []).append(numbers[event.record])
        stream = 0
        if ORIGIN in numbers:
            self._record(numbers[ORIGIN])
        for place, op in enumerate(self._schedule.ops):
            if op.stream != stream or place in waits:
                self._on(op.stream, waits.get(place, ()))
                stream = op.stream
            call = self._program.calls[self._order[place]]
            args = [self._renamed(arg) for arg in call.args]
            called = relax.Call(call.op, args, call.attrs, ty_args=call.ty_args)
            self._bind(f"_{place}", called, _result_type(call))
            if place in numbers:
                self._record(numbers[place])
        if stream != 0 or ORIGIN in waits:
            self._on(0, waits.get(ORIGIN, ()))

    def _on(self, stream: int, waits: Sequence[int]) -> None:
        args = [_int(stream), *map(_int, waits)]
        self._bind("_on", _packed("convoy.streams.on", args, _NOTHING), _NOTHING)

    def _record(self, event: int) -> None:
        self._bind("_event", _packed("convoy.streams.record", [_int(event)], _NOTHING), _NOTHING)

    def _renamed(self, expr: relax.Expr) -> relax.Expr:
        """An expression of the old function in the new one; allocations of results and views are
        emitted where they are first used."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._renamed(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            whole = self._renamed(expr.tuple_value)
            item = relax.TupleGetItem(whole, expr.index)
            return self._bind("part", item, whole.ty.fields[expr.index])
        if not isinstance(expr, relax.Var):
            return expr
        known = self._known.get(expr)
        if known is None and (own := self._program.slices.get(expr)) is not None:
            # Of a tensor outside of the arena: a result, or a parameter.
            offset = own.begin * itemsize(dtype_of(expr))
            known = self._bind(
                expr.name, self._view(self._renamed(own.whole), offset, expr), expr.ty
            )
        elif known is None:
            definition = self._program.definitions.get(expr)
            if definition is None:  # a result
                known = self._bind(
                    expr.name, builtin.alloc_tensor(expr.ty.shape, dtype_of(expr), 0), expr.ty
                )
            elif isinstance(definition, relax.Call):  # a view
                args = [self._renamed(definition.args[0]), *definition.args[1:]]
                view = relax.Call(definition.op, args, definition.attrs, ty_args=definition.ty_args)
                known = self._bind(expr.name, view, expr.ty)
            else:
                known = self._renamed(definition)
        elif isinstance(known, relax.TupleGetItem):  # a tensor in the arena, named at first use
            known = self._bind(expr.name, known, expr.ty)
        self._known[expr] = known
        return known

    def _bind(self, name: str, value: relax.Expr, ty: tvm.ir.Type) -> relax.Var:
        var = relax.Var(name, ty)
        value = self._builder.normalize(value)
        self._bindings.append(relax.VarBinding(var, value))
        return var

    def _function(
        self,
        params: Sequence[relax.Var],
        result: relax.Expr,
        ty: tvm.ir.Type,
        attrs: Mapping[str, object] | None,
    ) -> relax.Function:
        block = relax.BindingBlock(self._bindings)
        return relax.Function(
            list(params), relax.SeqExpr([block], result), ty, self._program.func.is_pure, attrs
        )


def _result_type(call: relax.Call) -> tvm.ir.Type:
    return call.ty_args[0] if call.ty_args else relax.AnyType()


def _packed(name: str, args: Sequence[relax.Expr], ty: tvm.ir.Type) -> relax.Call:
    return relax.Call(relax.ExternFunc(name), list(args), None, ty_args=[ty], ret_ty=ty)


def _int(value: int) -> relax.Expr:
    return tvm.tirx.IntImm("int64", value)
