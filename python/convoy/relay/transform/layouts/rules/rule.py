"""A rule: how an operator works in another layout.

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
from convoy.relay.transform.layouts.names import axes, factor, tokens
from convoy.relay.types import TensorType, Type

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
UNKNOWN = InferCorrectLayoutOutput([None], [None], None)


def rule_for(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def with_changes(attrs: Attrs, **changes: Any) -> Attrs:
    """Return attributes with some of them changed."""
    return Attrs(attrs.cls, {**attrs, **changes})


def shape_of(found: Type) -> tuple[Any, ...]:
    """Return the shape of a tensor type."""
    assert isinstance(found, TensorType)
    return found.shape


def first_layouts(new: Layouts | None, old: Layouts) -> tuple[str | None, str | None]:
    """Return the old and the new layout of the first input."""
    return old[0], (new or old)[0]


def divides(found: Type, layout: str, target: str) -> bool:
    """Check that a tensor's sizes can be split as a layout asks for."""
    sizes = ((axis, size_along(axis, layout, found)) for axis in axes(target))
    return all(size is None or size % factor(target, axis) == 0 for axis, size in sizes)


def size_along(axis: str, layout: str, found: Type) -> int | None:
    """Return the number of elements along an axis, None where it is not known."""
    size = 1
    for token, extent in zip(tokens(layout), shape_of(found), strict=False):
        if token[-1].upper() == axis:
            if not isinstance(extent, int):
                return None
            size *= extent
    return size
