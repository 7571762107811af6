"""Functions drawn at random, to break schedules: chains of arithmetic, moves, gathers, windows,
reductions and softmaxes over odd axes, of extents from one upwards and of many dtypes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import te, tirx, topi

from ..helpers.stock import compiled

_EXTENTS = [1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 24, 32, 33, 64, 100, 129, 257, 1000]
_DTYPES = ["float32"] * 4 + ["float16", "bfloat16", "int32", "int64", "int8", "bool"]
_MOST = 30_000  # elements of a tensor


@dataclass
class Drawn:
    """A function, its inputs' values, and how many results it has (they come last)."""

    func: tirx.PrimFunc
    inputs: list[np.ndarray[Any, Any]]
    results: list[np.ndarray[Any, Any]]  # zeros

    @property
    def tolerance(self) -> float:
        """Largest relative error; LLVM rounds intermediate results of 16 bits elsewhere."""
        return 5e-3 if "float16" in self.func.script() else 1e-5

    def by_llvm(self) -> list[np.ndarray[Any, Any]]:
        """The results of the function as it is, compiled for the CPU."""
        mod = tvm.IRModule({"main": self.func.with_attr("global_symbol", "main")})
        return run(compiled(mod)["main"], self, tvm.cpu())


def run(function: Any, drawn: Drawn, device: Any) -> list[np.ndarray[Any, Any]]:
    args = [tvm.runtime.tensor(a, device) for a in (*drawn.inputs, *drawn.results)]
    function(*args)
    return [a.numpy() for a in args[len(drawn.inputs) :]]


def differences(got: list[np.ndarray[Any, Any]], want: list[np.ndarray[Any, Any]]) -> float:
    """The largest error of a result, relative to its largest value; infinite where one is finite
    and the other is not."""
    worst = 0.0
    for y, z in zip(got, want, strict=True):
        y, z = y.astype("float64"), z.astype("float64")
        finite = np.isfinite(z)
        if not np.array_equal(finite, np.isfinite(y)):
            return math.inf
        scale = np.abs(z[finite]).max(initial=0.0) or 1.0
        worst = max(worst, float(np.abs(y - z)[finite].max(initial=0.0)) / scale)
    return worst


def draw(seed: int) -> Drawn:
    return _Drawing(seed).finish()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: list[te.Tensor] = []
        self.values: list[np.ndarray[Any, Any]] = []
        self.made = [self.input(self.shape())]
        self.dtype = str(self.made[0].dtype)

    def finish(self) -> Drawn:
        steps = [self.arithmetic, self.move, self.reduce, self.softmax, self.gather, self.window]
        for _ in range(int(self.rng.integers(1, 6))):
            step = steps[int(self.rng.choice(len(steps), p=[0.3, 0.25, 0.2, 0.05, 0.1, 0.1]))]
            self.made.append(step(self.made[-1]))
        if self.rng.random() < 0.3:
            self.made[-1] = topi.cast(self.made[-1], self.pick(["float32", "float16", "int32"]))
        results = [self.made[-1]]
        if len(self.made) > 3 and self.rng.random() < 0.2:
            results.append(topi.add(self.made[2], self.made[2]))
        if any(results[0].same_as(x) for x in self.inputs):
            results[0] = topi.add(results[0], results[0])
        func = te.create_prim_func([*self.inputs, *results])
        zeros = [np.zeros(_shape(r), _numpy(str(r.dtype))) for r in results]
        return Drawn(func, self.values, zeros)

    # -- parts ---------------------------------------------------------------------------------

    def pick(self, choices: list[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def shape(self) -> tuple[int, ...]:
        shape: list[int] = []
        for _ in range(int(self.rng.integers(0, 5))):
            shape.append(self.pick(_EXTENTS))
            if math.prod(shape) > _MOST:
                shape[-1] = 1
        return tuple(shape)

    def input(self, shape: tuple[int, ...], dtype: str = "", below: int = 4) -> te.Tensor:
        dtype = dtype or self.pick(_DTYPES)
        if dtype.startswith(("float", "bfloat")):
            value = self.rng.uniform(-1, 1, shape)
        else:
            value = self.rng.integers(0, 2 if dtype == "bool" else below, shape)
        self.values.append(np.asarray(value).astype(_numpy(dtype)))
        self.inputs.append(te.placeholder(shape, dtype, name=f"p{len(self.inputs)}"))
        return self.inputs[-1]

    def number(self, x: te.Tensor) -> te.Tensor:
        return topi.cast(x, "int32") if str(x.dtype) == "bool" else x

    # -- steps: a tensor in, a tensor out --------------------------------------------------------

    def arithmetic(self, x: te.Tensor) -> te.Tensor:
        x = self.number(x)
        kind = self.pick(["unary", "binary", "cast", "where", "scalar"])
        floating = "float" in str(x.dtype)
        if kind == "cast":
            return topi.cast(x, self.pick(["float32", "float16", "int32", "bfloat16"]))
        if kind == "unary" and floating:
            return self.pick([topi.tanh, topi.exp, topi.abs, topi.negative])(topi.clip(x, -4, 4))
        shape = [d if self.rng.random() < 0.7 else 1 for d in _shape(x)]
        shape = shape[int(self.rng.integers(0, len(shape) + 1)) :]
        if kind == "where":
            return topi.where(self.input(_shape(x), "bool"), x, topi.negative(x))
        if kind == "scalar":
            return topi.maximum(x, tirx.const(0, str(x.dtype)))
        other = self.input(tuple(shape), str(x.dtype))
        return self.pick([topi.add, topi.subtract, topi.maximum])(x, other)

    def move(self, x: te.Tensor) -> te.Tensor:
        shape = _shape(x)
        kind = self.pick(["transpose", "reshape", "slice", "pad", "concat", "flip", "repeat"])
        if not shape:
            return topi.expand_dims(x, 0)
        axis = int(self.rng.integers(len(shape)))
        if kind == "transpose":
            return topi.transpose(x, [int(a) for a in self.rng.permutation(len(shape))])
        if kind == "reshape":
            return topi.reshape(x, (math.prod(shape),) if len(shape) > 1 else (1, *shape, 1))
        if kind == "slice":
            begin = [int(self.rng.integers(d)) for d in shape]
            return topi.strided_slice(x, begin, list(shape), [self.pick([1, 2])] * len(shape))
        if kind == "flip":
            return topi.flip(x, axis)
        if math.prod(shape) > _MOST // 2:
            return topi.transpose(x)
        if kind == "repeat":
            return topi.repeat(x, 2, axis)
        if kind == "pad" and str(x.dtype) != "bool":
            before = [int(v) for v in self.rng.integers(0, 2, len(shape))]
            return topi.nn.pad(x, before, before[::-1], tirx.const(0, str(x.dtype)))
        other = [*shape[:axis], self.pick([1, 3, 8]), *shape[axis + 1 :]]
        return topi.concatenate([x, self.input(tuple(other), str(x.dtype))], axis)

    def reduce(self, x: te.Tensor) -> te.Tensor:
        x, rank = self.number(x), len(x.shape)
        axes = [a for a in range(rank) if self.rng.random() < 0.5]
        if not axes:
            return self.arithmetic(x)
        keep = bool(self.rng.random() < 0.3)
        if str(x.dtype) in ("float16", "bfloat16"):
            x = topi.cast(x, "float32")
        kind = self.pick(["sum", "sum", "max", "min", "arg"])
        if kind == "arg":
            return topi.argmin(x, axes[0], keep)
        return getattr(topi, kind)(x, axes, keep)

    def softmax(self, x: te.Tensor) -> te.Tensor:
        if not len(x.shape):
            return self.arithmetic(x)
        axis = int(self.rng.integers(len(x.shape)))
        return topi.nn.softmax(topi.cast(x, "float32"), axis)

    def gather(self, x: te.Tensor) -> te.Tensor:
        if not len(x.shape) or math.prod(_shape(x)) > _MOST // 4:
            return self.arithmetic(x)
        axis = int(self.rng.integers(len(x.shape)))
        dtype = self.pick(["int32", "int64"])
        indices = self.input(self.pick([(), (3,), (2, 2)]), dtype, _shape(x)[axis])
        return topi.take(x, indices, axis, mode="clip")

    def window(self, x: te.Tensor) -> te.Tensor:
        """Sums of three neighbours, every second one, over the border zero."""
        shape = _shape(x)
        if not shape or str(x.dtype) == "bool":
            return self.arithmetic(x)
        if str(x.dtype) in ("float16", "bfloat16"):
            x = topi.cast(x, "float32")
        axis = int(self.rng.integers(len(shape)))
        size, r = shape[axis], te.reduce_axis((0, 3), name="r")

        def element(*index: Any) -> Any:
            at = index[axis] * 2 + r - 1
            inside = tirx.all(at >= 0, at < size)
            moved = (*index[:axis], at, *index[axis + 1 :])
            return te.sum(
                tirx.if_then_else(inside, x(*moved), tirx.const(0, str(x.dtype))), axis=[r]
            )

        out = (*shape[:axis], (size + 1) // 2, *shape[axis + 1 :])
        return te.compute(out, element, name="window")


def _shape(x: te.Tensor) -> tuple[int, ...]:
    return tuple(int(d) for d in x.shape)


def _numpy(dtype: str) -> Any:
    return ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
