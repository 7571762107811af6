"""Rules of operators along axes: norms, reductions, transposes."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.attrs import Attrs
from convoy.relay.ops.reduction import reduced_axes
from convoy.relay.transform.layouts.names import axes, factor, index, is_blocked, tokens, unsplit
from convoy.relay.transform.layouts.rules.rule import (
    RULES,
    UNKNOWN,
    InferCorrectLayoutOutput,
    Layouts,
    Rule,
    first_layouts,
    rule_for,
    shape_of,
    with_changes,
)
from convoy.relay.types import Type


def moved_axis(
    axis: int, old: str | None, new: str | None, blocked: bool = False
) -> tuple[int, str | None]:
    """Return where an axis is in the new layout, and that layout; without splits if need be."""
    if old is None or new is None or old == new:
        return axis, new
    name = tokens(old)[axis % len(tokens(old))]
    if name not in tokens(new) or (factor(new, name) > 1 and not blocked):
        new = axes(new)
    return index(new, name), new


def along(vectors: int, results: int = 1, scales: bool = False) -> Rule:
    """Make the rule of an operator along one axis, with inputs of that axis alone.

    Args:
        vectors: The number of these inputs.
        results: The number of results.
        scales: Whether the inputs may be scalars, for which the axis has no meaning.
    """

    def rule(
        attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
    ) -> InferCorrectLayoutOutput:
        before, after = first_layouts(new, old)
        if before is None:
            return UNKNOWN
        if scales and all(not shape_of(t) for t in types[1:]):
            return InferCorrectLayoutOutput([after, *[""] * vectors], [after] * results, attrs)
        axis, after = moved_axis(int(attrs["axis"]), before, after)
        if after != before:
            attrs = with_changes(attrs, axis=axis)
        rest = ["C"] * vectors
        return InferCorrectLayoutOutput([after, *rest], [after, *["C"] * (results - 1)], attrs)

    return rule


RULES["nn.batch_norm"] = along(4, 3)
RULES["nn.instance_norm"] = RULES["nn.layer_norm"] = RULES["nn.group_norm"] = along(2)
RULES["nn.prelu"] = along(1)
RULES["nn.softmax"] = RULES["nn.log_softmax"] = RULES["nn.fast_softmax"] = along(0)
RULES["nn.lrn"] = along(0)
RULES["qnn.requantize"] = along(4)
RULES["qnn.quantize"] = RULES["qnn.dequantize"] = along(2, scales=True)


@rule_for("nn.l2_normalize")
def _l2_normalize(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = first_layouts(new, old)
    if before is None or attrs["axis"] is None:
        return UNKNOWN
    if after is not None and after != before:
        after = axes(after)
        moved = tuple(moved_axis(int(a), before, after)[0] for a in attrs["axis"])
        attrs = with_changes(attrs, axis=moved)
    return InferCorrectLayoutOutput([after], [after], attrs)


_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "all", "any", "argmax", "argmin", "variance")


@rule_for(*_REDUCTIONS)
def _reduction(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = first_layouts(new, old)
    if before is None or after is None or is_blocked(before):
        return UNKNOWN
    gone = {before[a] for a in reduced_axes(attrs, len(before))}
    if after != before:
        if len(old) > 1 or attrs.type_key.endswith("ArgReduceAttrs"):
            after = axes(after)  # indices count along one axis
        parts = tokens(after)
        moved = tuple(i for i, part in enumerate(parts) if part[-1].upper() in gone)
        attrs = with_changes(attrs, axis=moved, exclude=False)
    result = after
    for axis in gone:
        result = unsplit(result, axis)
    if not attrs["keepdims"]:
        result = "".join(t for t in tokens(after) if t[-1].upper() not in gone)
    return InferCorrectLayoutOutput([after] * len(old), [result], attrs)


@rule_for("squeeze")
def _squeeze(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = first_layouts(new, old)
    if before is None or after is None or is_blocked(before):
        return UNKNOWN
    shape = shape_of(types[0])
    given = attrs["axis"]
    found = [i for i, d in enumerate(shape) if d == 1] if given is None else given
    gone = {before[int(a)] for a in found}
    if after != before:
        after = axes(after)
        attrs = with_changes(attrs, axis=tuple(i for i, a in enumerate(after) if a in gone))
    return InferCorrectLayoutOutput([after], ["".join(a for a in after if a not in gone)], attrs)


@rule_for("transpose")
def _transpose(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Give the result the layout that it had."""
    before, after = first_layouts(new, old)
    if before is None or after is None or is_blocked(before):
        return UNKNOWN
    order = attrs["axes"] if attrs["axes"] is not None else range(len(before))[::-1]
    result = "".join(before[int(a)] for a in order)
    if after != before:
        after = axes(after)
        attrs = with_changes(attrs, axes=tuple(after.index(a) for a in result))
    return InferCorrectLayoutOutput([after], [result], attrs)


@rule_for("topk")
def _topk(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    found = along(0)(attrs, new, old, types)
    if found is UNKNOWN:
        return found
    count = 2 if attrs["ret_type"] == "both" else 1
    after = found.input_layouts[0]
    return InferCorrectLayoutOutput([after], [after] * count, found.new_attrs)
