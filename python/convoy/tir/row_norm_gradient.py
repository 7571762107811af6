"""GPU kernels of the gradients of layer norms (``convoy.layer_norm_backward``) and softmaxes.

A thread keeps its elements of two tensors as those of :mod:`.row_norms` keep one: x and dy times
gamma of a layer norm, the result and dy of a softmax.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import KERNEL, when
from .row_norms import RowKernel, RowNorm, add, registers


def gradient_kernel(norm: RowNorm) -> tirx.PrimFunc:
    """The kernel of a gradient by its kind: (dy, x, gamma, dx, mean, rstd) of a
    "layer_norm_gradient", the last two (rows,) in float32; (dy, y, dx) of a "softmax_gradient"."""
    kinds = {"layer_norm_gradient": _LayerNormGradient, "softmax_gradient": _SoftmaxGradient}
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(norm.kind)
            T.func_attr(KERNEL)
            kinds[norm.kind](norm).emit()
        return builder.get()


class _Gradient(RowKernel):
    def _parameters(self) -> None:
        norm = self.norm
        self.dy, self.data = (T.arg(n, T.buffer(norm.shape, norm.dtype)) for n in ("dy", "x"))
        self.vectors = self._factors_of_columns()
        self.out = T.arg("dx", T.buffer(norm.shape, norm.out_dtype))
        self.gradients = registers((norm.steps, norm.width), "float32")

    def _factors_of_columns(self) -> list[tirx.Buffer]:
        return []

    def _elements(self, k: int, i: int) -> tuple[Expr, ...]:
        return self.kept[k, i], self.gradients[k, i]

    def _load_gradients(self) -> None:
        """Keep dy times the factors of columns, after the loads of all."""
        norm, row = self.norm, self._read_row()
        for k, column in self._vectors():
            with T.vectorized(0, norm.width) as i:
                T.buffer_store(self.loaded, self.dy[row, column + i], [k, i])
            if not norm.waits:
                self._load_factors(k, column)
        for k, _ in self._vectors():
            for i in range(norm.width):
                value = self.loaded[k, i].astype("float32")
                for factors in self.factors:
                    value *= factors[k, i]
                T.buffer_store(self.gradients, value, [k, i])


class _SoftmaxGradient(_Gradient):
    """dx = y * (dy - the sum of dy * y)."""

    STATISTICS = 1

    def _body(self) -> None:
        self._load()
        self._load_gradients()
        along = self._statistic(0, 0.0, add, lambda y, g: g * y)
        self._store(lambda y, g: y * (g - along))


class _LayerNormGradient(_Gradient):
    STATISTICS = 4

    def _parameters(self) -> None:
        super()._parameters()
        rows = (self.norm.rows,)
        self.of_rows = [T.arg(n, T.buffer(rows, "float32")) for n in ("mean", "rstd")]

    def _factors_of_columns(self) -> list[tirx.Buffer]:
        return [T.arg("gamma", T.buffer((self.norm.columns,), "float32"))]

    def _body(self) -> None:
        norm, count = self.norm, float(self.norm.columns)
        self._load()
        self._load_gradients()
        self.vectors, self.factors = [], []  # gamma has been used
        mean, scale = self._mean_and_scale()
        middle = self._keep(2, self._statistic(2, 0.0, add, lambda x, g: g) / count)
        along = self._statistic(3, 0.0, add, lambda x, g: g * (x - mean) * scale)
        along = self._keep(3, along / count)
        self._store(lambda x, g: scale * (g - middle - (x - mean) * scale * along))
        with when(tirx.all(self.row < norm.rows, self.lane == 0)):
            for out, value in zip(self.of_rows, (mean, scale), strict=True):
                T.buffer_store(out, value, [self.row])
