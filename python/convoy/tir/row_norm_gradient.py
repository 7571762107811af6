"""GPU kernel for ``convoy.layer_norm_backward``: a thread keeps its elements of x and of dy times
gamma, as those of :mod:`.row_norms` keep x."""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import KERNEL, when
from .row_norms import RowKernel, RowNorm, add, registers


def gradient_kernel(norm: RowNorm) -> tirx.PrimFunc:
    """(dy, x, gamma, dx, mean, rstd) of a norm of kind "layer_norm_gradient"; the last two are
    (rows,) in float32."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(norm.kind)
            T.func_attr(KERNEL)
            _Gradient(norm).emit()
        return builder.get()


class _Gradient(RowKernel):
    STATISTICS = 4

    def _parameters(self) -> None:
        norm = self.norm
        self.dy, self.data = (T.arg(n, T.buffer(norm.shape, norm.dtype)) for n in ("dy", "x"))
        self.vectors = [T.arg("gamma", T.buffer((norm.columns,), "float32"))]
        self.out = T.arg("dx", T.buffer(norm.shape, norm.out_dtype))
        self.of_rows = [T.arg(n, T.buffer((norm.rows,), "float32")) for n in ("mean", "rstd")]
        self.gradients = registers((norm.steps, norm.width), "float32")

    def _elements(self, k: int, i: int) -> tuple[Expr, ...]:
        return self.kept[k, i], self.gradients[k, i]

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

    def _load_gradients(self) -> None:
        """Keep dy times gamma, after the loads of both."""
        norm, row = self.norm, self._read_row()
        for k, column in self._vectors():
            with T.vectorized(0, norm.width) as i:
                T.buffer_store(self.loaded, self.dy[row, column + i], [k, i])
            if not norm.waits:
                self._load_factors(k, column)
        for k, _ in self._vectors():
            for i in range(norm.width):
                value = self.loaded[k, i].astype("float32") * self.factors[0][k, i]
                T.buffer_store(self.gradients, value, [k, i])
