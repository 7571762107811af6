"""Rules of slices and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.attrs import Attrs
from convoy.relay.transform.layouts.names import axes, factor, is_blocked, tokens
from convoy.relay.transform.layouts.rules.rule import (
    UNKNOWN,
    InferCorrectLayoutOutput,
    Layouts,
    first_layouts,
    rule_for,
    shape_of,
    with_changes,
)
from convoy.relay.types import Type


@rule_for("strided_slice")
def _strided_slice(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = first_layouts(new, old)
    if before is None or after is None or len(old) != 1 or is_blocked(before):
        return UNKNOWN
    if after == before:
        return InferCorrectLayoutOutput([after], [after], attrs)
    shape = shape_of(types[0])
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
        attrs = with_changes(attrs, axes=tuple(parts.index(a) for a in order))
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
    attrs = with_changes(attrs, begin=begin, end=end, strides=strides)
    return InferCorrectLayoutOutput([after], [after], attrs)


def _item(values: Sequence[Any] | None, i: int, default: Any) -> Any:
    found = values[i] if values is not None and i < len(values) else None
    return default if found is None else int(found)


@rule_for("slice_like")
def _slice_like(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    if old[0] is None or old[1] is None or is_blocked(old[0]):
        return UNKNOWN
    before, after = old[0], (new or old)[0] or old[0]
    if after != before:
        after = axes(after)
        given = attrs["axes"]
        names = [before[int(a)] for a in given] if given else list(before)
        attrs = with_changes(attrs, axes=tuple(after.index(a) for a in names))
    return InferCorrectLayoutOutput([after, after], [after], attrs)


@rule_for("nn.pad")
def _pad(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    before, after = first_layouts(new, old)
    if before is None or after is None or is_blocked(before):
        return UNKNOWN
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
        attrs = with_changes(attrs, pad_width=tuple(divided.get(t, (0, 0)) for t in tokens(after)))
    return InferCorrectLayoutOutput([after, *[""] * (len(old) - 1)], [after], attrs)
