"""ToMixedPrecision: compute in half precision where that is exact enough.

Every operator has a category: convolutions and GEMMs are always converted, others follow their
arguments, and those that lose too many digits never are. Casts stand where the two kinds meet.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from convoy.errors import InvalidOption, UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Call, Expr, Function, Op, Var, op_call
from convoy.relay.attrs import Attrs
from convoy.relay.infer.incremental import type_of
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.context import PassContext
from convoy.relay.transform.rewriting import expr_pass, is_primitive
from convoy.relay.types import TensorType, TupleType, Type
from convoy.relay.visit import post_order, rebuild

MIXED_PRECISION_ALWAYS, MIXED_PRECISION_FOLLOW, MIXED_PRECISION_NEVER = 0, 1, 2
#: Category, dtype that sums are computed in, dtype of the result.
Conversion = tuple[int, str, str]

_TYPES = ("float16", "bfloat16", "float32", "float64")
_MAX = {"float16": 65504.0}
_ALWAYS = (
    "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose",
    "nn.conv3d_transpose", "nn.dense", "nn.matmul", "nn.batch_matmul",
)  # fmt: skip
_FOLLOW = (
    # Values are moved or chosen.
    "nn.pad", "nn.batch_flatten", "concatenate", "zeros_like", "ones_like", "full_like",
    "expand_dims", "squeeze", "transpose", "layout_transform", "reshape", "reverse_reshape",
    "reshape_like", "stack", "dyn.reshape", "shape_of", "split", "strided_slice",
    "dyn.strided_slice", "slice_like", "take", "gather", "gather_nd", "where", "repeat", "tile",
    "dyn.tile", "reverse", "broadcast_to", "dyn.broadcast_to", "broadcast_to_like",
    "collapse_sum_to", "collapse_sum_like", "one_hot", "sequence_mask", "sequence_mask_backward",
    "nn.depth_to_space", "nn.space_to_depth", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d",
    "nn.adaptive_max_pool1d", "nn.adaptive_max_pool2d", "nn.adaptive_max_pool3d",
    "nn.global_max_pool2d", "max", "min", "argmax", "argmin", "maximum", "minimum", "copy",
    "contrib_reverse_reshape", "unravel_index",
    # One arithmetic operation, or a few.
    "abs", "ceil", "floor", "round", "trunc", "negative", "sign", "sqrt", "rsqrt", "sigmoid",
    "tanh", "fast_tanh", "fast_exp", "fast_erf", "sin", "cos", "atan", "add", "subtract",
    "multiply", "divide", "nn.bias_add", "nn.batch_norm", "nn.relu", "nn.leaky_relu", "nn.prelu",
    "nn.dropout", "nn.lrn", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.upsampling",
    "nn.upsampling3d", "nn.fast_softmax", "equal", "not_equal", "less", "less_equal", "greater",
    "greater_equal", "logical_and", "logical_or", "logical_not", "logical_xor", "isnan",
    "isfinite", "isinf",
)  # fmt: skip
_NEVER = (
    "exp", "log", "log2", "log10", "power", "erf", "tan", "cosh", "sinh", "acos", "acosh",
    "asin", "asinh", "atanh", "nn.cross_entropy", "nn.cross_entropy_with_logits", "nn.softmax",
    "nn.log_softmax", "nn.l2_normalize", "nn.layer_norm", "nn.group_norm", "nn.instance_norm",
    # Sums of many values.
    "sum", "mean", "prod", "variance", "cumsum", "cumprod", "nn.global_avg_pool2d",
    "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d",
    # Indices and coordinates.
    "arange", "topk", "sort", "argsort", "argwhere", "unique", "scatter_elements", "scatter_nd",
    "image.resize1d", "image.resize2d", "image.resize3d", "image.crop_and_resize",
    "image.affine_grid", "image.grid_sample", "image.dilation2d", "vision.get_valid_counts",
    "vision.non_max_suppression", "vision.roi_align", "vision.roi_pool",
    # What a result is made from has no say in its dtype.
    "cast", "cast_like", "zeros", "ones", "full",
)  # fmt: skip
_CATEGORY = {
    **dict.fromkeys(_ALWAYS, MIXED_PRECISION_ALWAYS),
    **dict.fromkeys(_FOLLOW, MIXED_PRECISION_FOLLOW),
    **dict.fromkeys(_NEVER, MIXED_PRECISION_NEVER),
}


@register_pass
def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Pass:
    """Compute convolutions, GEMMs and what follows them in another dtype, with casts around.

    Categories of operators can be changed with `register_mixed_precision_conversion`. Results have
    the new dtype where their operator was converted; the configuration
    `relay.ToMixedPrecision.keep_orig_output_dtype` casts them back.

    Args:
        mixed_precision_type: "float16", "bfloat16", "float64".
        missing_op_mode: What to do about operators without a category, which are not converted:
            0 raises an error, 1 warns, 2 says nothing.
    """
    if mixed_precision_type not in _TYPES:
        raise InvalidOption(f"precision '{mixed_precision_type}'", "'float16' or 'bfloat16'")
    if missing_op_mode not in (0, 1, 2):
        raise InvalidOption(f"missing_op_mode={missing_op_mode}", "0, 1 or 2")

    def run(function: Function) -> Expr:
        keep = PassContext.current().config.get("relay.ToMixedPrecision.keep_orig_output_dtype")
        return _Converter(mixed_precision_type, missing_op_mode).convert(function, bool(keep))

    return expr_pass("ToMixedPrecision", 0, run)


class _Converter:
    """One walk over a function.

    Attributes:
        casts: Casts by expression and dtype, in both directions.
    """

    def __init__(self, dtype: str, missing: int) -> None:
        self.dtype, self.missing = dtype, missing
        self.memo: dict[int, Expr] = {}
        self.casts: dict[tuple[int, str], Expr] = {}
        self.unknown: set[str] = set()

    def convert(self, root: Function, keep: bool) -> Expr:
        bound: dict[int, list[Var]] = {}
        for node in post_order(root):
            if isinstance(node, ast.Let):
                bound.setdefault(id(node.value), []).append(node.var)
        for node in post_order(root, lambda n: not is_primitive(n)):
            if node is root:
                continue
            self.memo[id(node)] = node if is_primitive(node) else self._node(node)
            for var in bound.get(id(node), ()):  # the body comes later
                self._bind(var, self.memo[id(node)])
        for name in sorted(self.unknown):
            warnings.warn(
                f"ToMixedPrecision leaves {name} in float32: it has no category", stacklevel=2
            )
        body = self.memo[id(root.body)]
        if keep:
            body = self._as(body, root.body.checked_type)
        if body is root.body:
            return root
        return Function(root.params, body, None, root.type_params, root.attrs, span=root.span)

    def _node(self, node: Expr) -> Expr:
        if isinstance(node, Var):
            return self.memo.get(id(node), node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Function):  # its callers know its type
            body = self._as(self.memo[id(node.body)], node.body.checked_type)
            if body is node.body:
                return node
            return Function(node.params, body, node.ret_type, node.type_params, node.attrs)
        if isinstance(node, ast.If):
            parts = [
                self._as(self.memo[id(e)], e.checked_type)
                for e in (node.cond, node.true_branch, node.false_branch)
            ]
            return ast.If(parts[0], parts[1], parts[2], span=node.span)
        return rebuild(node, self.memo)

    def _bind(self, var: Var, value: Expr) -> None:
        """Give a variable of a let the type that its value has now."""
        found = value.checked_type_ or type_of(value)
        if found != var.checked_type:
            self.memo[id(var)] = Var(var.name_hint, found)

    def _call(self, node: Call) -> Expr:
        args = [self.memo[id(a)] for a in node.args]
        category, sums, result = self._conversion(node)
        if category == MIXED_PRECISION_FOLLOW:
            follows = all(self._is_free(a) or self._is_converted(type_of(a)) for a in args)
            category = MIXED_PRECISION_ALWAYS if follows else MIXED_PRECISION_NEVER
        if category == MIXED_PRECISION_NEVER:
            args = [self._as(a, old.checked_type) for a, old in zip(args, node.args, strict=True)]
            return rebuild(node, {**self.memo, **dict(zip(map(id, node.args), args, strict=True))})
        args = [self._cast(a, self.dtype) for a in args]
        attrs = node.attrs
        if attrs is not None and self._has_floats(node.checked_type):
            new = {k: sums for k in ("out_dtype",) if k in attrs}
            attrs = Attrs(attrs.cls, {**attrs, **new})
        call = Call(node.op, args, attrs, span=node.span)
        return call if sums == result else self._cast(call, result)

    def _conversion(self, node: Call) -> Conversion:
        if not isinstance(node.op, Op):  # functions keep their types
            return MIXED_PRECISION_NEVER, "float32", "float32"
        name = node.op.name
        user: Callable[..., Sequence[object]] | None = node.op.get_attr(
            "FTVMMixedPrecisionConversionType"
        )
        if user is not None:
            category, sums, result = user(node, self.dtype)
            return int(category), str(sums), str(result)  # type: ignore[call-overload]
        if name == "clip":
            category = self._clip(node)
        elif name in _CATEGORY:
            category = _CATEGORY[name]
        else:
            category = MIXED_PRECISION_NEVER
            if self.missing == 0:
                raise UnsupportedOp(
                    f"{name} without a category",
                    "one that register_mixed_precision_conversion sets",
                    "Or pass missing_op_mode=1",
                )
            if self.missing == 1:
                self.unknown.add(name)
        return category, self.dtype, self.dtype

    def _clip(self, node: Call) -> int:
        limit = _MAX.get(self.dtype)
        assert node.attrs is not None
        ends = (node.attrs["a_min"], node.attrs["a_max"])
        wide = limit is not None and any(abs(end) > limit for end in ends)
        return MIXED_PRECISION_NEVER if wide else MIXED_PRECISION_FOLLOW

    def _is_free(self, expr: Expr) -> bool:
        """Check for values that are cast at no cost: they are cast once, or when compiled."""
        return isinstance(expr, (Var, ast.Constant))

    def _is_converted(self, found: Type) -> bool:
        if isinstance(found, TupleType):
            return all(map(self._is_converted, found.fields))
        return not self._has_floats(found) or found.dtype == self.dtype  # type: ignore[attr-defined]

    def _has_floats(self, found: Type) -> bool:
        if isinstance(found, TupleType):
            return any(map(self._has_floats, found.fields))
        return isinstance(found, TensorType) and found.dtype in _TYPES

    def _cast(self, expr: Expr, dtype: str) -> Expr:
        """Cast the floating-point tensors of an expression."""
        found = type_of(expr)
        if isinstance(found, TupleType):
            if not self._has_floats(found):
                return expr
            fields = (
                list(expr.fields)
                if isinstance(expr, ast.Tuple)
                else [ast.TupleGetItem(expr, i) for i in range(len(found.fields))]
            )
            new = [self._cast(f, dtype) for f in fields]
            same = all(a is b for a, b in zip(fields, new, strict=True))
            return expr if same else ast.Tuple(new)
        if not self._has_floats(found) or found.dtype == dtype:  # type: ignore[attr-defined]
            return expr
        known = self.casts.get((id(expr), dtype))
        if known is None:
            known = op_call("cast", [expr], dtype=dtype)
            self.casts[id(expr), dtype] = known
            self.casts[id(known), found.dtype] = expr  # type: ignore[attr-defined]
        return known

    def _as(self, expr: Expr, wanted: Type) -> Expr:
        """Cast an expression back to the type that it had."""
        found = type_of(expr)
        if found == wanted or not self._has_floats(found):
            return expr
        if isinstance(wanted, TupleType):
            if isinstance(expr, ast.Tuple):
                fields: Sequence[Expr] = expr.fields
            else:
                fields = [ast.TupleGetItem(expr, i) for i in range(len(wanted.fields))]
            return ast.Tuple([self._as(f, t) for f, t in zip(fields, wanted.fields, strict=True)])
        assert isinstance(wanted, TensorType)
        return self._cast(expr, wanted.dtype)
