"""Gradient descent of many parameters as one kernel.

A residual network has a hundred and more parameters, most of them vectors: a kernel for each
would be mostly launches. Each block of the kernel works on a run of one tensor, found from its
number by a tree of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .channel_sums import IN_PLACE_KERNEL, when
from .loads import vector_width

_THREADS = 256
_STEPS = 1  # vectors of each thread; more make the code long and are no faster

#: Tensors of one kernel: five pointers each stay below the 4 KB that a launch may carry.
MOST = 64


@dataclass(frozen=True)
class Parameter:
    """Shape of a parameter, and dtypes of it, its velocity and its gradient."""

    shape: tuple[int, ...]
    dtype: str
    velocity_dtype: str
    gradient_dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Elements that a thread handles at once."""
        return vector_width(self.elements, "float32")

    @property
    def dtypes(self) -> tuple[str, str, str]:
        return self.dtype, self.velocity_dtype, self.gradient_dtype

    @property
    def blocks(self) -> int:
        return -(-self.elements // (_THREADS * _STEPS * self.width))


Step = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


def update_kernel(name: str, parameters: Sequence[Parameter], step: Step) -> tirx.PrimFunc:
    """A kernel of (weights..., velocities..., gradients..., learning rate (), new weights...,
    new velocities...). ``step(w, velocity, gradient, rate)`` gives the new weight and
    velocity of an element, in float32. Results may be in the memory of the inputs."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr(IN_PLACE_KERNEL)

            def arguments(prefix: str, dtypes: Sequence[str]) -> list[Any]:
                return [
                    T.arg(f"{prefix}{i}", T.buffer(p.shape, dtype))
                    for i, (p, dtype) in enumerate(zip(parameters, dtypes, strict=True))
                ]

            def flat(tensors: Sequence[Any], which: int) -> list[Any]:
                return [
                    T.decl_buffer((p.elements,), p.dtypes[which], data=tensor.data)
                    for p, tensor in zip(parameters, tensors, strict=True)
                ]

            weights = arguments("w", [p.dtype for p in parameters])
            velocities = arguments("v", [p.velocity_dtype for p in parameters])
            gradients = arguments("g", [p.gradient_dtype for p in parameters])
            rate = T.arg("rate", T.buffer((), "float32"))
            new_weights = arguments("new_w", [p.dtype for p in parameters])
            new_velocities = arguments("new_v", [p.velocity_dtype for p in parameters])
            flat_inputs = [flat(t, i) for i, t in enumerate((weights, velocities, gradients))]
            flat_outputs = [flat(t, i) for i, t in enumerate((new_weights, new_velocities))]
            inputs = list(zip(*flat_inputs, strict=True))
            outputs = list(zip(*flat_outputs, strict=True))
            emit = _Run(step, rate)
            starts = [0]
            for parameter in parameters:
                starts.append(starts[-1] + parameter.blocks)
            with (
                T.thread_binding(0, starts[-1], thread="blockIdx.x") as block,
                T.thread_binding(0, _THREADS, thread="threadIdx.x") as thread,
            ):

                def choose(low: int, high: int) -> None:
                    if high - low == 1:
                        run = block - starts[low]
                        emit(parameters[low], inputs[low], outputs[low], run, thread)
                        return
                    middle = (low + high) // 2
                    with T.If(block < starts[middle]):
                        with T.Then():
                            choose(low, middle)
                        with T.Else():
                            choose(middle, high)

                choose(0, len(parameters))
        return builder.get()


class _Run:
    """The elements of one thread of one tensor: all loads first, then arithmetic and stores."""

    def __init__(self, step: Step, rate: Any) -> None:
        self._step, self._rate = step, rate
        self._held: dict[tuple[str, int, str], Any] = {}

    def _registers(self, what: str, dtypes: Sequence[str]) -> list[Any]:
        """Local buffers, shared by all tensors."""
        found = []
        for i, dtype in enumerate(dtypes):
            key = (what, i, dtype)
            if key not in self._held:
                self._held[key] = T.sblock_alloc_buffer((_STEPS, 4), dtype, scope="local")
            found.append(self._held[key])
        return found

    def __call__(
        self, p: Parameter, inputs: Sequence[Any], outputs: Sequence[Any], block: Any, thread: Any
    ) -> None:
        dtypes = p.dtypes
        held, width = self._registers("old", dtypes), p.width
        new = self._registers("new", dtypes[:2])
        even = p.elements % (_THREADS * _STEPS * width) == 0

        def at(k: int) -> Any:
            return ((block * _STEPS + k) * _THREADS + thread) * width

        def inside(k: int) -> Any:
            return when(at(k) < p.elements, not even)

        for k in range(_STEPS):
            with inside(k):
                for buffer, source in zip(held, inputs, strict=True):
                    with T.vectorized(0, width) as i:
                        T.buffer_store(buffer, source[at(k) + i], [k, i])
        for k in range(_STEPS):
            with inside(k):
                for i in range(width):
                    values = [buffer[k, i].astype("float32") for buffer in held]
                    results = self._step(values[0], values[1], values[2], self._rate[()])
                    for buffer, dtype, result in zip(new, dtypes, results, strict=False):
                        T.buffer_store(buffer, result.astype(dtype), [k, i])
                for buffer, out in zip(new, outputs, strict=True):
                    with T.vectorized(0, width) as i:
                        T.buffer_store(out, buffer[k, i], [at(k) + i])
