"""Rules of operators on elements and of broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.attrs import Attrs
from convoy.relay.transform.layouts.names import axes, factor, is_whole, last, unsplit
from convoy.relay.transform.layouts.rules.rule import (
    UNKNOWN,
    InferCorrectLayoutOutput,
    Layouts,
    rule_for,
    shape_of,
    size_along,
)
from convoy.relay.types import Type

_ELEMENTWISE = (
    "abs", "negative", "exp", "log", "log2", "log10", "sqrt", "rsqrt", "sigmoid", "tanh", "erf",
    "sin", "cos", "tan", "atan", "floor", "ceil", "round", "trunc", "sign", "clip", "cast",
    "copy", "isnan", "isfinite", "isinf", "logical_not", "bitwise_not", "zeros_like",
    "ones_like", "nn.relu", "nn.leaky_relu", "nn.dropout", "fast_exp", "fast_tanh", "fast_erf",
    "annotation.stop_fusion", "annotation.checkpoint",
    "fixed_point_multiply", "annotation.compiler_begin", "annotation.compiler_end",
)  # fmt: skip


@rule_for(*_ELEMENTWISE)
def _elementwise(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    found = new[0] if new else next((o for o in old if o is not None), None)
    count = 2 if attrs is not None and attrs.type_key.endswith("DropoutAttrs") else 1
    return InferCorrectLayoutOutput([found] * len(old), [found] * count, attrs)


_BROADCAST = (
    "add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power",
    "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "left_shift", "right_shift",
)  # fmt: skip


@rule_for(*_BROADCAST)
def _broadcast(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    found = list(new or old)[:2]
    ranks = [len(shape_of(t)) for t in types[:2]]
    if found[0] is None and found[1] is None:
        return UNKNOWN
    if found[0] is None or found[1] is None:
        known = 0 if found[0] is not None else 1
        name = found[known]
        if ranks[known] < ranks[1 - known] or name is None:
            return UNKNOWN
        found[1 - known] = last(name, ranks[1 - known])
        return InferCorrectLayoutOutput(found, [name], attrs)
    names = [str(f) for f in found]
    if "" in names:
        return InferCorrectLayoutOutput(names, [names[0] or names[1]], attrs)
    large = 0 if len(axes(names[0])) >= len(axes(names[1])) else 1
    small, result = 1 - large, names[large]
    if all(d == 1 for d in shape_of(types[small])):
        return InferCorrectLayoutOutput(names, [result], attrs)  # broadcasts in any layout
    if not is_whole(names[small]) and result != old[large]:
        result = str(old[large])
    names[large] = names[small] = result
    for axis in axes(result):
        step, size = factor(result, axis), size_along(axis, old[small] or "", types[small])
        if step > 1 and size == 1:
            names[small] = unsplit(names[small], axis)
        elif step > 1 and size is not None and size % step:
            plain = axes(result)
            return InferCorrectLayoutOutput([plain, plain], [plain], attrs)
    if not is_whole(old[small] or ""):
        names[small] = old[small] or ""
    return InferCorrectLayoutOutput(names, [result], attrs)


@rule_for("qnn.add", "qnn.subtract", "qnn.mul")
def _quantized_binary(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    if any(shape_of(t) not in ((), (1,)) for t in types[2:]):
        return UNKNOWN
    found = _broadcast(attrs, new, old, types)
    if found is UNKNOWN:
        return found
    return InferCorrectLayoutOutput(
        [*found.input_layouts, *["C"] * 6], found.output_layouts, found.new_attrs
    )
