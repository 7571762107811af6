"""How operators work in another layout.

A rule `(attrs, new_in, old_in, types)` gets the attributes, the layouts that the inputs have now
(None on the first call, for the layouts as they were), those that they had, and the types that they
had. It returns the layouts that it wants and gives, and attributes that suit them. A layout is a
name, None where it is not known. The inputs of a tuple count one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from convoy.relay.attrs import Attrs
from convoy.relay.ops.reduction import reduced_axes
from convoy.relay.transform.layouts.names import (
    axes,
    factor,
    index,
    is_blocked,
    is_convertible,
    is_whole,
    last,
    tokens,
    unsplit,
)
from convoy.relay.types import TensorType, TupleType, Type

Layouts = Sequence[str | None]


@dataclass
class InferCorrectLayoutOutput:
    """The layouts of an operator.

    Attributes:
        input_layouts: What its inputs are to have.
        output_layouts: What its results then have.
        new_attrs: Its attributes for these layouts.
    """

    input_layouts: Layouts
    output_layouts: Layouts
    new_attrs: Attrs | None


Rule = Callable[[Any, Layouts | None, Layouts, Sequence[Type]], InferCorrectLayoutOutput]
RULES: dict[str, Rule] = {}
_UNKNOWN = InferCorrectLayoutOutput([None], [None], None)


def _rules(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def _with(attrs: Attrs, **changes: Any) -> Attrs:
    return Attrs(attrs.cls, {**attrs, **changes})


def _shape(found: Type) -> tuple[Any, ...]:
    assert isinstance(found, TensorType)
    return found.shape


def _of(new: Layouts | None, old: Layouts) -> tuple[str | None, str | None]:
    """Return the old and the new layout of the first input."""
    return old[0], (new or old)[0]


# ---- elementwise

_ELEMENTWISE = (
    "abs", "negative", "exp", "log", "log2", "log10", "sqrt", "rsqrt", "sigmoid", "tanh", "erf",
    "sin", "cos", "tan", "atan", "floor", "ceil", "round", "trunc", "sign", "clip", "cast",
    "copy", "isnan", "isfinite", "isinf", "logical_not", "bitwise_not", "zeros_like",
    "ones_like", "nn.relu", "nn.leaky_relu", "nn.dropout", "fast_exp", "fast_tanh", "fast_erf",
    "annotation.stop_fusion", "annotation.checkpoint",
    "fixed_point_multiply", "annotation.compiler_begin", "annotation.compiler_end",
)  # fmt: skip


@_rules(*_ELEMENTWISE)
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


@_rules(*_BROADCAST)
def _broadcast(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    found = list(new or old)[:2]
    ranks = [len(_shape(t)) for t in types[:2]]
    if found[0] is None and found[1] is None:
        return _UNKNOWN
    if found[0] is None or found[1] is None:
        known = 0 if found[0] is not None else 1
        name = found[known]
        if ranks[known] < ranks[1 - known] or name is None:
            return _UNKNOWN
        found[1 - known] = last(name, ranks[1 - known])
        return InferCorrectLayoutOutput(found, [name], attrs)
    names = [str(f) for f in found]
    if "" in names:
        return InferCorrectLayoutOutput(names, [names[0] or names[1]], attrs)
    large = 0 if len(axes(names[0])) >= len(axes(names[1])) else 1
    small, result = 1 - large, names[large]
    if all(d == 1 for d in _shape(types[small])):
        return InferCorrectLayoutOutput(names, [result], attrs)  # broadcasts in any layout
    if not is_whole(names[small]) and result != old[large]:
        result = str(old[large])
    names[large] = names[small] = result
    for axis in axes(result):
        step, size = factor(result, axis), _size(axis, old[small] or "", types[small])
        if step > 1 and size == 1:
            names[small] = unsplit(names[small], axis)
        elif step > 1 and size is not None and size % step:
            plain = axes(result)
            return InferCorrectLayoutOutput([plain, plain], [plain], attrs)
    if not is_whole(old[small] or ""):
        names[small] = old[small] or ""
    return InferCorrectLayoutOutput(names, [result], attrs)


def _divides(found: Type, layout: str, target: str) -> bool:
    """Check that a tensor's sizes can be split as a layout asks for."""
    sizes = ((axis, _size(axis, layout, found)) for axis in axes(target))
    return all(size is None or size % factor(target, axis) == 0 for axis, size in sizes)


def _size(axis: str, layout: str, found: Type) -> int | None:
    """Return the number of elements along an axis, None where it is not known."""
    size = 1
    for token, extent in zip(tokens(layout), _shape(found), strict=False):
        if token[-1].upper() == axis:
            if not isinstance(extent, int):
                return None
            size *= extent
    return size


@_rules("qnn.add", "qnn.subtract", "qnn.mul")
def _quantized_binary(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    if any(_shape(t) not in ((), (1,)) for t in types[2:]):
        return _UNKNOWN
    found = _broadcast(attrs, new, old, types)
    if found is _UNKNOWN:
        return found
    return InferCorrectLayoutOutput(
        [*found.input_layouts, *["C"] * 6], found.output_layouts, found.new_attrs
    )


# ---- operators that name their layout

_CONVOLUTIONS = tuple(
    f"{kind}{rank}d{end}"
    for kind in ("nn.conv", "qnn.conv")
    for rank in (1, 2, 3)
    for end in ("", "_transpose")
)


@_rules(*_CONVOLUTIONS, "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
def _convolution(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    given = [attrs["data_layout"], attrs["kernel_layout"], *["C"] * (len(old) - 2)]
    return InferCorrectLayoutOutput(given, [attrs["out_layout"] or attrs["data_layout"]], attrs)


@_rules("nn.deformable_conv2d")
def _deformable(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    data = attrs["data_layout"]
    given = [data, data, attrs["kernel_layout"]]
    return InferCorrectLayoutOutput(given, [attrs["out_layout"] or data], attrs)


_POOLS = (
    *(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)),
    *(f"nn.adaptive_{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)),
    "nn.global_max_pool2d", "nn.global_avg_pool2d", "qnn.avg_pool2d", "image.resize1d",
    "image.resize2d", "image.resize3d", "vision.roi_align", "vision.roi_pool",
)  # fmt: skip


@_rules(*_POOLS)
def _pool(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Follow the input, unless the layout of the result is given."""
    found = attrs["layout"]
    spatial = axes(found)
    unchanged = old[0] in (None, found)  # else a script asked for this layout
    if unchanged and not attrs.get("out_layout") and new and is_convertible(new[0] or "", found):
        wanted = new[0] or found
        if all(factor(wanted, a) == 1 for a in spatial if a not in "NC"):
            found = wanted
            attrs = _with(attrs, layout=found)
    return InferCorrectLayoutOutput([found, *["C"] * (len(old) - 1)], [found], attrs)


@_rules("vision.roi_align", "vision.roi_pool")
def _roi(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    return InferCorrectLayoutOutput([attrs["layout"], "NC"], [attrs["layout"]], attrs)


@_rules("nn.upsampling", "nn.upsampling3d")
def _upsampling(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Follow an input whose spatial axes stay where they are."""
    found = attrs["layout"]
    if new and new[0] and is_convertible(new[0], found):
        spatial = [a for a in axes(found) if a not in "NC"]
        if all(index(new[0], a) == index(found, a) and factor(new[0], a) == 1 for a in spatial):
            found = new[0]
            attrs = _with(attrs, layout=found)
    return InferCorrectLayoutOutput([found, *[""] * (len(old) - 1)], [found], attrs)


# ---- operators with axes


def _moved(
    axis: int, old: str | None, new: str | None, blocked: bool = False
) -> tuple[int, str | None]:
    """Return where an axis is in the new layout, and that layout; without splits if need be."""
    if old is None or new is None or old == new:
        return axis, new
    name = tokens(old)[axis % len(tokens(old))]
    if name not in tokens(new) or (factor(new, name) > 1 and not blocked):
        new = axes(new)
    return index(new, name), new


def _along(vectors: int, results: int = 1, scales: bool = False) -> Rule:
    """Make the rule of an operator along one axis, with inputs of that axis alone.

    Args:
        vectors: The number of these inputs.
        results: The number of results.
        scales: Whether the inputs may be scalars, for which the axis has no meaning.
    """

    def rule(
        attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        before, after = _of(new, old)
        if before is None:
            return _UNKNOWN
        if scales and all(not _shape(t) for t in types[1:]):
            return InferCorrectLayoutOutput([after, *[""] * vectors], [after] * results, attrs)
        axis, after = _moved(int(attrs["axis"]), before, after)
        if after != before:
            attrs = _with(attrs, axis=axis)
        rest = ["C"] * vectors
        return InferCorrectLayoutOutput([after, *rest], [after, *["C"] * (results - 1)], attrs)

    return rule


RULES["nn.batch_norm"] = _along(4, 3)
RULES["nn.instance_norm"] = RULES["nn.layer_norm"] = RULES["nn.group_norm"] = _along(2)
RULES["nn.prelu"] = _along(1)
RULES["nn.softmax"] = RULES["nn.log_softmax"] = RULES["nn.fast_softmax"] = _along(0)
RULES["qnn.requantize"] = _along(4)
RULES["qnn.quantize"] = RULES["qnn.dequantize"] = _along(2, scales=True)


@_rules("nn.lrn")
def _lrn(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    return _along(0)(attrs, new, old, types)


@_rules("nn.l2_normalize")
def _l2_normalize(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = _of(new, old)
    if before is None or attrs["axis"] is None:
        return _UNKNOWN
    if after is not None and after != before:
        after = axes(after)
        moved = tuple(_moved(int(a), before, after)[0] for a in attrs["axis"])
        attrs = _with(attrs, axis=moved)
    return InferCorrectLayoutOutput([after], [after], attrs)


_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "all", "any", "argmax", "argmin", "variance")


@_rules(*_REDUCTIONS)
def _reduction(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = _of(new, old)
    if before is None or after is None or is_blocked(before):
        return _UNKNOWN
    gone = {before[a] for a in reduced_axes(attrs, len(before))}
    if after != before:
        if len(old) > 1 or attrs.type_key.endswith("ArgReduceAttrs"):
            after = axes(after)  # indices count along one axis
        parts = tokens(after)
        moved = tuple(i for i, part in enumerate(parts) if part[-1].upper() in gone)
        attrs = _with(attrs, axis=moved, exclude=False)
    result = after
    for axis in gone:
        result = unsplit(result, axis)
    if not attrs["keepdims"]:
        result = "".join(t for t in tokens(after) if t[-1].upper() not in gone)
    return InferCorrectLayoutOutput([after] * len(old), [result], attrs)


@_rules("squeeze")
def _squeeze(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = _of(new, old)
    if before is None or after is None or is_blocked(before):
        return _UNKNOWN
    shape = _shape(types[0])
    given = attrs["axis"]
    found = [i for i, d in enumerate(shape) if d == 1] if given is None else given
    gone = {before[int(a)] for a in found}
    if after != before:
        after = axes(after)
        attrs = _with(attrs, axis=tuple(i for i, a in enumerate(after) if a in gone))
    return InferCorrectLayoutOutput([after], ["".join(a for a in after if a not in gone)], attrs)


@_rules("transpose")
def _transpose(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Give the result the layout that it had."""
    before, after = _of(new, old)
    if before is None or after is None or is_blocked(before):
        return _UNKNOWN
    order = attrs["axes"] if attrs["axes"] is not None else range(len(before))[::-1]
    result = "".join(before[int(a)] for a in order)
    if after != before:
        after = axes(after)
        attrs = _with(attrs, axes=tuple(after.index(a) for a in result))
    return InferCorrectLayoutOutput([after], [result], attrs)


@_rules("concatenate")
def _concatenate(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before = next((o for o in old if o is not None), None)
    if before is None:
        return _UNKNOWN
    after = before
    if new:
        pairs = [(o, n) for o, n in zip(old, new, strict=True) if n is not None]
        after = next((n for o, n in pairs if n != o), before)
    if after != before:
        fields = types[0].fields if isinstance(types[0], TupleType) else ()
        if not all(_divides(f, before, after) for f in fields):
            after = axes(after)
        axis, _ = _moved(int(attrs["axis"]), before, after, blocked=True)
        attrs = _with(attrs, axis=axis)
    return InferCorrectLayoutOutput([after] * len(old), [after], attrs)


@_rules("qnn.concatenate")
def _quantized_concatenate(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    count = (len(old) - 2) // 3
    found = _concatenate(attrs, new[:count] if new else None, old[:count], types)
    if found is _UNKNOWN:
        return found
    rest = ["C"] * (len(old) - count)
    return InferCorrectLayoutOutput(
        [*found.input_layouts, *rest], found.output_layouts, found.new_attrs
    )


@_rules("split")
def _split(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = _of(new, old)
    if before is None or after is None:
        return _UNKNOWN
    sections = attrs["indices_or_sections"]
    count = sections if isinstance(sections, int) else len(sections) + 1
    if after != before:
        at = int(attrs["axis"]) % len(tokens(before))
        name, size = tokens(before)[at], _shape(types[0])[at]
        step = factor(after, name)
        cuts = [size // sections] if isinstance(sections, int) else [int(i) for i in sections]
        if not name.isupper() or any(cut % step for cut in cuts):
            after, step = axes(after), 1
        if not isinstance(sections, int):
            sections = tuple(int(i) // step for i in sections)
        axis, _ = _moved(at, before, after, blocked=True)
        attrs = _with(attrs, axis=axis, indices_or_sections=sections)
    return InferCorrectLayoutOutput([after], [after] * count, attrs)


@_rules("topk")
def _topk(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    found = _along(0)(attrs, new, old, types)
    if found is _UNKNOWN:
        return found
    count = 2 if attrs["ret_type"] == "both" else 1
    after = found.input_layouts[0]
    return InferCorrectLayoutOutput([after], [after] * count, found.new_attrs)


@_rules("strided_slice")
def _strided_slice(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = _of(new, old)
    if before is None or after is None or len(old) != 1 or is_blocked(before):
        return _UNKNOWN
    if after == before:
        return InferCorrectLayoutOutput([after], [after], attrs)
    shape = _shape(types[0])
    given = attrs["axes"]
    where = list(range(len(attrs["begin"]))) if given is None else [int(a) for a in given]
    by_size = attrs["slice_mode"] == "size"
    cuts = {}
    if given is None:
        where = list(range(max(len(attrs[f] or ()) for f in ("begin", "end", "strides"))))
    for i, at in enumerate(where):
        begin = _item(attrs["begin"], i, 0)
        end = _item(attrs["end"], i, -1 if by_size else shape[at])
        stride = _item(attrs["strides"], i if len(attrs["strides"] or ()) != 1 else 0, 1)
        cuts[before[at % len(before)]] = (begin, end, stride)
    for axis, (begin, end, stride) in list(cuts.items()):
        step = factor(after, axis)
        if step == 1:
            continue
        size = shape[before.index(axis)]
        ends = end if end < 0 or by_size else min(end, size)
        if stride != 1 or begin % step or ends % step or by_size:
            after = axes(after)
            break
        cuts[axis] = (begin // step, ends // step, stride)
    parts = tokens(after)
    if given is not None:
        order = [a for at in where for a in [before[at % len(before)]]]
        chosen = [cuts[a] for a in order]
        attrs = _with(attrs, axes=tuple(parts.index(a) for a in order))
    else:
        sizes = {a: shape[i] for i, a in enumerate(before)}
        chosen = []
        for part in parts:
            if part in cuts:
                chosen.append(cuts[part])
            else:
                size = int(part[:-1]) if not part.isupper() else sizes[part] // factor(after, part)
                chosen.append((0, -1 if by_size else size, 1))
    begin, end, strides = (tuple(c) for c in zip(*chosen, strict=True))
    attrs = _with(attrs, begin=begin, end=end, strides=strides)
    return InferCorrectLayoutOutput([after], [after], attrs)


def _item(values: Sequence[Any] | None, i: int, default: Any) -> Any:
    found = values[i] if values is not None and i < len(values) else None
    return default if found is None else int(found)


@_rules("slice_like")
def _slice_like(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    if old[0] is None or old[1] is None or is_blocked(old[0]):
        return _UNKNOWN
    before, after = old[0], (new or old)[0] or old[0]
    if after != before:
        after = axes(after)
        given = attrs["axes"]
        names = [before[int(a)] for a in given] if given else list(before)
        attrs = _with(attrs, axes=tuple(after.index(a) for a in names))
    return InferCorrectLayoutOutput([after, after], [after], attrs)


@_rules("nn.pad")
def _pad(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = _of(new, old)
    if before is None or after is None or is_blocked(before):
        return _UNKNOWN
    if after != before:
        widths = {a: tuple(w) for a, w in zip(before, attrs["pad_width"], strict=True)}
        divided = {}
        for axis, width in widths.items():
            step = factor(after, axis)
            if any(int(w) % step for w in width):
                after, divided = axes(after), widths
                break
            divided[axis] = tuple(int(w) // step for w in width)
        if not is_blocked(after):
            divided = widths
        attrs = _with(attrs, pad_width=tuple(divided.get(t, (0, 0)) for t in tokens(after)))
    return InferCorrectLayoutOutput([after, *[""] * (len(old) - 1)], [after], attrs)


@_rules("layout_transform")
def _layout_transform(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Start from the layout that the input has now."""
    source, target = attrs["src_layout"], attrs["dst_layout"]
    if new and new[0] and is_convertible(new[0], target):
        source = new[0]
        attrs = _with(attrs, src_layout=source)
    return InferCorrectLayoutOutput([source], [target], attrs)
