"""Rules of operators that join tensors and cut them into parts."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.attrs import Attrs
from convoy.relay.transform.layouts.names import axes, factor, tokens
from convoy.relay.transform.layouts.rules.along import moved_axis
from convoy.relay.transform.layouts.rules.rule import (
    UNKNOWN,
    InferCorrectLayoutOutput,
    Layouts,
    divides,
    first_layouts,
    rule_for,
    shape_of,
    with_changes,
)
from convoy.relay.types import TupleType, Type


@rule_for("concatenate")
def _concatenate(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before = next((o for o in old if o is not None), None)
    if before is None:
        return UNKNOWN
    after = before
    if new:
        pairs = [(o, n) for o, n in zip(old, new, strict=True) if n is not None]
        after = next((n for o, n in pairs if n != o), before)
    if after != before:
        fields = types[0].fields if isinstance(types[0], TupleType) else ()
        if not all(divides(f, before, after) for f in fields):
            after = axes(after)
        axis, _ = moved_axis(int(attrs["axis"]), before, after, blocked=True)
        attrs = with_changes(attrs, axis=axis)
    return InferCorrectLayoutOutput([after] * len(old), [after], attrs)


@rule_for("qnn.concatenate")
def _quantized_concatenate(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    count = (len(old) - 2) // 3
    found = _concatenate(attrs, new[:count] if new else None, old[:count], types)
    if found is UNKNOWN:
        return found
    rest = ["C"] * (len(old) - count)
    return InferCorrectLayoutOutput(
        [*found.input_layouts, *rest], found.output_layouts, found.new_attrs
    )


@rule_for("split")
def _split(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = first_layouts(new, old)
    if before is None or after is None:
        return UNKNOWN
    sections = attrs["indices_or_sections"]
    count = sections if isinstance(sections, int) else len(sections) + 1
    if after != before:
        at = int(attrs["axis"]) % len(tokens(before))
        name, size = tokens(before)[at], shape_of(types[0])[at]
        step = factor(after, name)
        cuts = [size // sections] if isinstance(sections, int) else [int(i) for i in sections]
        if not name.isupper() or any(cut % step for cut in cuts):
            after, step = axes(after), 1
        if not isinstance(sections, int):
            sections = tuple(int(i) // step for i in sections)
        axis, _ = moved_axis(at, before, after, blocked=True)
        attrs = with_changes(attrs, axis=axis, indices_or_sections=sections)
    return InferCorrectLayoutOutput([after], [after] * count, attrs)
