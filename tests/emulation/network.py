"""A network placed and scheduled for a GPU, run on the CPU: generated kernels by emulation, library
calls by NumPy, in any order that streams and events allow, in the memory that was planned."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from convoy.graph.expr import dtype_of, is_const, op_name, shape_of
from convoy.graph.function import result_of
from convoy.ir.schedule_parts import ORIGIN
from convoy.ir.workload import Workload
from convoy.lower.target import with_arch
from convoy.measure import reference
from convoy.pipeline.lowering import lower_to_calls
from convoy.placement.placement import Placement
from convoy.runtime import load_runtime
from convoy.streams.schedule import schedule
from convoy.tir.loads import itemsize

from ..graph.numpy_kernels import run_workload, writable
from .kernels import emulated, turns


class Emulation:
    """The program of a placed network."""

    def __init__(self, placement: Placement, streams: int | str = "auto") -> None:
        load_runtime()
        plan, target = placement.plan, with_arch("cuda", placement.plan.device)
        with emulated():
            _, lowered = lower_to_calls(placement, target)
            timing = schedule(lowered, plan, streams)
        self._kernels, self.rescheduled = lowered.kernels, lowered.rescheduled
        self.program, self.schedule = timing.program, timing.schedule
        self._workloads = {name: choice.workload for name, choice in plan.functions().items()}

    def __call__(self, *inputs: np.ndarray, seed: int = 0) -> list[np.ndarray]:
        """Results of a call; the seed draws the order of its launches, and odd ones have blocks and
        threads take turns backwards."""
        self._tensors = self._allocate(inputs)
        by_name = {op.name: i for i, op in enumerate(self.program.ops)}
        with turns(backwards=seed % 2 == 1):
            for place in self._order(random.Random(seed)):
                self._call(self.program.calls[by_name[self.schedule.ops[place].name]])
        result = self._value(result_of(self.program.func))
        results = result if isinstance(result, list) else [result]
        return [as_numpy(tensor).copy() for tensor in results]

    def _allocate(self, inputs: Sequence[np.ndarray]) -> dict[relax.Var, tvm.runtime.Tensor]:
        memory = self.schedule.memory
        arena = poisoned((max(1, memory.peak_bytes),), "uint8")
        offsets = {buffer.name: buffer.offset for buffer in memory.buffers}
        given = iter(inputs)
        found = {}
        for storage in self.program.storages:
            if storage.var in set(self.program.func.params):
                found[storage.var] = tvm.runtime.tensor(next(given))
            elif storage.var.name in offsets:
                found[storage.var] = view(
                    arena, offsets[storage.var.name], storage.shape, storage.dtype
                )
            else:
                found[storage.var] = poisoned(storage.shape, storage.dtype)
        for var in self.program.sliced:
            own = self.program.slices[var]
            offset = own.begin * itemsize(dtype_of(var))
            found[var] = view(
                found[own.whole], offset, shape_of(var), dtype_of(var), own.row_stride
            )
        return found

    def _order(self, rng: random.Random) -> list[int]:
        """Places of the schedule in an order that its streams and events allow."""
        ops = self.schedule.ops
        before: list[set[int]] = [set() for _ in ops]
        last: dict[int, int] = {}
        for place, op in enumerate(ops):
            if op.stream in last:
                before[place].add(last[op.stream])
            last[op.stream] = place
        for event in self.schedule.events:
            if event.record != ORIGIN and event.wait != ORIGIN:
                before[event.wait].add(event.record)
        order: list[int] = []
        left = set(range(len(ops)))
        while left:
            ready = [place for place in sorted(left) if before[place] <= set(order)]
            order.append(rng.choice(ready))
            left.remove(order[-1])
        return order

    def _value(self, expr: relax.Expr) -> Any:
        if isinstance(expr, relax.Tuple):
            return [self._value(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value)[expr.index]
        if is_const(expr):
            return expr.value
        if isinstance(expr, relax.Var) and expr in self._tensors:
            return self._tensors[expr]
        definition = self.program.definitions[expr]
        if not isinstance(definition, relax.Call):
            return self._value(definition)
        assert op_name(definition) == "relax.reshape", definition
        return self._value(definition.args[0])._create_view(shape_of(expr), dtype_of(expr))

    def _call(self, call: relax.Call) -> None:
        args = [self._value(arg) for arg in call.args]
        if isinstance(call.op, tvm.ir.GlobalVar):
            self._kernels[call.op.name_hint](*args)
            return
        workload = self._workloads[str(call.op.global_symbol)]
        arrays = [self._array(arg, tensor) for arg, tensor in zip(call.args, args, strict=True)]
        outputs = compute(workload, arrays[: -workload.num_outputs])
        for array, output in zip(arrays[-workload.num_outputs :], outputs, strict=True):
            array[...] = output.reshape(array.shape)

    def _array(self, arg: relax.Expr, tensor: tvm.runtime.Tensor) -> np.ndarray:
        """The memory of an argument, to be written."""
        own = self.program.slices.get(arg) if isinstance(arg, relax.Var) else None
        if own is None:
            return writable(as_numpy(tensor))
        rows = (*shape_of(arg)[:-1], own.row_stride)
        whole = writable(as_numpy(self._tensors[own.whole])).reshape(rows)
        return whole[..., own.begin : own.begin + shape_of(arg)[-1]]


def compute(workload: Workload, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    names = [name for name, _, _ in workload.operand_shapes()]
    if workload.op == "attention":
        outputs = reference.full(workload, dict(zip(names, operands, strict=False)))
        return [output.astype(workload.out_dtype) for output in outputs]
    return run_workload(workload, operands)


def view(
    arena: tvm.runtime.Tensor, offset: int, shape: Sequence[int], dtype: str, *row_stride: int
) -> tvm.runtime.Tensor:
    make = tvm_ffi.get_global_func(f"convoy.streams.{'slice' if row_stride else 'view'}")
    return make(arena, offset, tvm_ffi.Shape(shape), tvm.DataType(dtype), *row_stride)


def poisoned(shape: Sequence[int], dtype: str) -> tvm.runtime.Tensor:
    tensor = tvm.runtime.empty(shape, dtype)
    size = math.prod(shape) * itemsize(dtype)
    if size:
        writable(np.from_dlpack(tensor._create_view((size,), "uint8")))[...] = 0xFF
    return tensor


def as_numpy(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """The memory of a tensor."""
    if str(tensor.dtype) != "bfloat16":
        return np.from_dlpack(tensor)
    return np.from_dlpack(tensor._create_view(tensor.shape, "uint16")).view(ml_dtypes.bfloat16)
