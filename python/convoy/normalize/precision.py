"""The dtype policy: which operators compute in 16 bit.

Convolutions and matrix products take operands of the policy's dtype and accumulate in float32
(the accumulation is the kernel's affair, see ``accumulate.py``); one that was written for 16-bit
operands with a float32 result keeps that result. Operators that only move or combine values follow
their inputs, sensitive ones run in float32, as do divisions by what these give, and any operator
that is not listed gets the dtypes that it was written for. A network's own casts stay: what it
casts to float32 may be too large for 16 bits. So do its products in float32 if it has others in 16
bit; not those of attention, whose kernels have scores in float32. Function inputs and outputs keep
their dtype: an input is cast once, constants are cast at compile time.
"""

from __future__ import annotations

import math
from typing import ClassVar

import tvm
from tvm import relax

from ..errors import InvalidOption
from ..graph.expr import (
    attr_fields,
    call_like,
    dtype_of,
    is_const,
    is_tensor,
    op_name,
    relax_ops,
    shape_of,
)
from ..graph.function import used_vars
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES, HALF_DTYPES, PRECISIONS
from ..ops import DGRAD, DGRAD_3D, WGRAD
from ..ops.batch_norm import DATA_OPERANDS
from ..ops.layer_norm_backward import BACKWARD as LAYER_NORM_BACKWARD
from ..ops.optimizer import SQUARED_NORM, UPDATE
from ..ops.recurrent import RECURRENT

COMPUTE = relax_ops("nn.conv2d nn.conv2d_transpose nn.conv3d nn.conv3d_transpose matmul")

FOLLOW = relax_ops(
    """
    add subtract multiply divide maximum minimum negative abs clip sigmoid tanh where
    nn.relu nn.leakyrelu nn.prelu nn.silu nn.gelu nn.gelu_tanh nn.max_pool2d nn.avg_pool2d
    nn.max_pool3d nn.avg_pool3d nn.adaptive_avg_pool3d image.resize3d
    nn.softplus convoy.hardswish convoy.elu convoy.mish
    nn.adaptive_avg_pool2d mean max min nn.pad concat split strided_slice reshape permute_dims
    broadcast_to expand_dims squeeze flatten stack tile repeat flip take nn.pixel_shuffle
    image.resize2d zeros_like ones_like
    convoy.fold convoy.relu_backward convoy.activation_backward
    convoy.max_pool2d_backward convoy.avg_pool2d_backward
    """
)

SENSITIVE = relax_ops(
    """
    exp log power sqrt rsqrt erf sum prod std variance cumsum
    """
)

#: Sensitive, with a result in 16 bit where they were written for that.
NORMS = relax_ops(
    """
    nn.softmax nn.log_softmax nn.layer_norm nn.group_norm nn.instance_norm nn.rms_norm
    nn.batch_norm
    """
)

#: How many leading operands are data; the others are vectors in float32.
_DATA_OPERANDS = {**DATA_OPERANDS, LAYER_NORM_BACKWARD: 2}

_SOFTMAX = "relax.nn.softmax"

#: And of data in 16 bit, which theirs is as large as.
_SCALES = relax_ops("nn.layer_norm nn.group_norm nn.instance_norm nn.rms_norm")

#: Operators that TVM does not take in a dtype.
_NO_OPERATOR = {("relax.nn.prelu", "bfloat16")}

#: Operators that only move values.
_MOVES = relax_ops("reshape permute_dims take strided_slice flip expand_dims squeeze broadcast_to")


def compute_dtype(policy: str) -> str:
    """Dtype of convolution operands under ``policy``. Raises InvalidOption for an unknown one."""
    if policy not in PRECISIONS:
        raise InvalidOption(f"dtype {policy!r}", f"one of {', '.join(PRECISIONS)}")
    return policy if policy in HALF_DTYPES else "float32"


class ApplyPrecision(Rewriter):
    """Cast the operands of each operator as the policy requires."""

    infer_first: ClassVar[bool] = False

    def __init__(self, policy: str) -> None:
        super().__init__()
        self.dtype = compute_dtype(policy)
        self._casts: dict[tuple[relax.Var, str], relax.Expr] = {}
        self._is_mixed = False  # whether the network has products in the policy's 16 bit
        self._scores: set[relax.Var] = set()  # products that a softmax is of

    def start(self, func: relax.Function) -> None:
        self._is_mixed = self.dtype != "float32" and any(
            op_name(value) in COMPUTE and all(dtype_of(a) == self.dtype for a in value.args)
            for value in self.values.values()
        )
        if self._is_mixed:
            softmaxes = [v for v in self.values.values() if op_name(v) == _SOFTMAX]
            self._scores = {v for value in softmaxes for v in self._origins(value.args[0])}

    def cast(self, expr: relax.Expr, dtype: str) -> relax.Expr:
        """A float tensor (or tuple of tensors) in ``dtype``; anything else as it is."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.cast(field, dtype) for field in expr.fields])
        if not is_tensor(expr) or dtype_of(expr) not in FLOAT_DTYPES or dtype_of(expr) == dtype:
            return expr
        if is_const(expr):
            return self.emit(relax.op.astype(expr, dtype))
        made = self.producer(expr, "relax.astype")
        if made is not None and dtype_of(made.args[0]) == dtype and dtype != "float32":
            return made.args[0]  # widened before: the narrow value is still there
        view = self.producer(expr, "relax.reshape")
        if view is not None and (view.args[0], dtype) in self._casts:
            return self.emit(relax.op.reshape(self._casts[view.args[0], dtype], view.args[1]))
        if (expr, dtype) not in self._casts:
            self._casts[expr, dtype] = self.emit(self._cast(expr, dtype))
        return self._casts[expr, dtype]

    def _cast(self, expr: relax.Expr, dtype: str) -> relax.Expr:
        """A cast; one that narrows stands before what moves all of a value, with the kernel that
        made the value."""
        made = self.producer(expr)
        if made is not None and op_name(made) in _MOVES and dtype != "float32":
            source = made.args[0]
            if not is_const(source) and math.prod(shape_of(source)) <= math.prod(shape_of(expr)):
                return call_like(made, [self.cast(source, dtype), *made.args[1:]])
        return relax.op.astype(expr, dtype)

    def as_declared(self, expr: relax.Expr, declared: tvm.ir.Type) -> relax.Expr:
        """``expr`` in the dtypes of ``declared``, through tuples."""
        if isinstance(declared, tvm.ir.TupleType):
            if not isinstance(expr, relax.Tuple):
                fields = [
                    self.emit(relax.TupleGetItem(expr, i)) for i in range(len(declared.fields))
                ]
            else:
                fields = list(expr.fields)
            pairs = zip(fields, declared.fields, strict=True)
            return relax.Tuple([self.as_declared(field, ty) for field, ty in pairs])
        if isinstance(declared, relax.TensorType):
            return self.cast(expr, str(declared.dtype))
        return expr

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name = op_name(call)
        floats = all(is_tensor(a) and dtype_of(a) in FLOAT_DTYPES for a in call.args)
        if name in COMPUTE and floats and not self._stays_wide(old):
            args = [self.cast(a, self.dtype) for a in call.args]
            return call_like(call, args, out_dtype="float32" if self._widens(old) else None)
        if name in (DGRAD, DGRAD_3D, WGRAD) and floats:
            args = [self.cast(a, self.dtype) for a in call.args]
            return call_like(call, args, out_dtype="float32" if self._widens(old) else self.dtype)
        if name == "relax.astype" and {dtype_of(old), dtype_of(old.args[0])} <= {*FLOAT_DTYPES}:
            wide = self.producer(call.args[0])
            if wide is not None and dtype_of(old) == self.dtype and self._widens(wide):
                return call_like(wide, list(wide.args), out_dtype=None)
            # In float32 a cast to 16 bit rounds; 16 bits are those of the policy otherwise.
            widens = "float32" in (self.dtype, dtype_of(old))
            return self.cast(call.args[0], dtype_of(old) if widens else self.dtype)
        if name in _DATA_OPERANDS:
            count = _DATA_OPERANDS[name]
            dtype = self._followed(call.args[:count]) or self.dtype
            data = [self.cast(a, dtype) for a in call.args[:count]]
            vectors = [self.cast(a, "float32") for a in call.args[count:]]
            return call_like(call, data + vectors)
        if name == RECURRENT:
            return call_like(call, [self.cast(a, self.dtype) for a in call.args])
        if name == SQUARED_NORM:
            return call_like(call, list(call.args))
        if name == UPDATE:  # the gradient comes as it was computed
            declared = zip(call.args, old.args, strict=True)
            args = [self.as_declared(new, was.ty) for new, was in declared]
            return call_like(call, [args[0], call.args[1], *args[2:]])
        if name in SENSITIVE:
            return call_like(call, [self.cast(a, "float32") for a in call.args])
        if name in NORMS:
            wide = call_like(call, [self.cast(a, "float32") for a in call.args])
            found = {dtype_of(old), *([dtype_of(call.args[0])] if name in _SCALES else [])}
            narrows = self.dtype in found and self.dtype != "float32"
            return relax.op.astype(self.emit(wide), self.dtype) if narrows else wide
        if name in FOLLOW:
            dtype = self._followed(call.args)
            divides_wide = name == "relax.divide" and self._is_wide(call.args[1])
            if (divides_wide and dtype == self.dtype) or (name, dtype) in _NO_OPERATOR:
                wide = call_like(call, [self.cast(a, "float32") for a in call.args])
                return relax.op.astype(self.emit(wide), dtype)
            if dtype:
                return call_like(call, [self.cast(a, dtype) for a in call.args])
            return None
        args = [self.as_declared(new, was.ty) for new, was in zip(call.args, old.args, strict=True)]
        return call_like(call, args)

    def _stays_wide(self, product: relax.Call) -> bool:
        """Whether a network in 16 bit computes a product in float32 on purpose."""
        if not self._is_mixed or any(dtype_of(a) != "float32" for a in product.args):
            return False
        weights = (v for arg in product.args for v in self._origins(arg))
        return self.old.var not in self._scores and not any(
            op_name(self.values[v]) == _SOFTMAX for v in weights
        )

    def _origins(self, expr: relax.Expr) -> set[relax.Var]:
        """The products and softmaxes that an old value is computed from, through operators that
        move or combine values."""
        found, seen, left = set(), set(), used_vars(expr)
        while left:
            var = left.pop()
            value = self.values.get(var)
            if var in seen or value is None:
                continue
            seen.add(var)
            name = op_name(value)
            if name in COMPUTE or name == _SOFTMAX:
                found.add(var)
            elif name in FOLLOW or name == "relax.astype" or isinstance(value, relax.TupleGetItem):
                left += used_vars(value)
        return found

    def _is_wide(self, divisor: relax.Expr) -> bool:
        """Whether a divisor is computed in float32: a norm may be zero in 16 bit, and its bound."""
        return isinstance(divisor, relax.Var) and dtype_of(divisor) == "float32" != self.dtype

    def _widens(self, call: relax.Call) -> bool:
        """Whether a GEMM or convolution has operands of the policy's 16 bit and a wider result."""
        narrow = self.dtype != "float32" and all(dtype_of(a) == self.dtype for a in call.args)
        name = op_name(call)
        if not narrow or name not in (*COMPUTE, DGRAD, DGRAD_3D, WGRAD):
            return False
        return str(attr_fields(call.attrs)["out_dtype"]) == "float32"

    def _followed(self, args: list[relax.Expr]) -> str:
        """The policy's dtype when a computed operand has it; else the widest of the operands."""
        dtypes = []
        for arg in args:
            fields = arg.fields if isinstance(arg, relax.Tuple) else [arg]
            dtypes += [dtype_of(f) for f in fields if isinstance(f, relax.Var) and is_tensor(f)]
        dtypes = [d for d in dtypes if d in FLOAT_DTYPES]
        if self.dtype in dtypes:
            return self.dtype
        return "float32" if len(set(dtypes)) > 1 else (dtypes[0] if dtypes else "")

    def finish_output(self, expr: relax.Expr, declared: tvm.ir.Type) -> relax.Expr:
        return self.as_declared(expr, declared)
