"""Compute 16-bit arithmetic in float32 inside TVM's own kernels.

Convolutions and GEMMs accumulate in float32 and arithmetic between them rounds once, when a
value is stored: a 16-bit value with a single reader is handed on in float32, because FuseOps puts
producer and reader into one kernel; one with several readers is rounded and stored.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import call_like, dtype_of, is_tensor, op_name, relax_ops
from ..graph.rewriter import Rewriter
from ..graph.target import on_gpu
from ..ir.dtypes import HALF_DTYPES
from ..ops.activation import gelu16

PRODUCTS = relax_ops(
    """
    matmul nn.conv1d nn.conv2d nn.conv3d
    nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose
    """
)
_ARITHMETIC = relax_ops(
    """
    add subtract multiply divide maximum minimum negative clip sigmoid tanh exp log sqrt rsqrt
    nn.relu nn.leakyrelu nn.silu nn.gelu nn.gelu_tanh nn.prelu nn.softplus
    convoy.hardswish convoy.elu convoy.mish
    nn.avg_pool1d nn.avg_pool3d nn.adaptive_avg_pool1d nn.adaptive_avg_pool3d einsum
    acos acosh asin asinh atan atan2 atanh cosh log_add_exp mod round sinh
    image.affine_grid image.grid_sample vision.roi_align vision.roi_pool
    """
)
#: Of 16-bit operands, with results of another type; TVM knows them in float32.
_TESTS = relax_ops("isfinite isinf isnan")


class AccumulateInFloat32(Rewriter):
    """Accumulate convolutions and GEMMs, and compute 16-bit arithmetic, in float32."""

    infer_first: ClassVar[bool] = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name, narrow = op_name(call), dtype_of(old)
        if name in _TESTS and dtype_of(old.args[0]) in HALF_DTYPES:
            return call_like(call, [self._wide(call.args[0], old.args[0])])
        if narrow not in HALF_DTYPES:
            return None
        if name in PRODUCTS:
            wide = call_like(call, call.args, out_dtype="float32")
        elif name in _ARITHMETIC:
            args = [self._wide(a, o) for a, o in zip(call.args, old.args, strict=True)]
            fast = name == "relax.nn.gelu" and on_gpu()
            wide = gelu16(*args) if fast else call_like(call, args)
        else:
            return None
        return relax.op.astype(self.emit(wide), narrow)

    def _wide(self, expr: relax.Expr, old: relax.Expr) -> relax.Expr:
        """A 16-bit operand in float32; without the rounding where only this call reads it, unless
        the network wrote the cast."""
        if isinstance(expr, relax.Tuple) and isinstance(old, relax.Tuple):
            pairs = zip(expr.fields, old.fields, strict=True)
            return relax.Tuple([self._wide(*pair) for pair in pairs])
        if not is_tensor(expr) or dtype_of(expr) not in HALF_DTYPES:
            return expr
        made = self.producer(expr, "relax.astype")
        is_own = op_name(self.values.get(old, old)) != "relax.astype"
        if made is not None and is_own and self.uses[old] == 1:
            return made.args[0]
        return self.emit(relax.op.astype(expr, "float32"))
