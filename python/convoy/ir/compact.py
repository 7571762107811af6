"""Short JSON of workloads and candidates: fields with their default value are left out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from .attention import RowView
from .depth import Depth

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def without_defaults(value: DataclassInstance) -> dict[str, object]:
    """Return the fields that differ from their defaults, nested ones in the same form; views and
    depths are written in full."""
    found = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if content == field.default:
            continue
        if isinstance(content, (Depth, RowView)):
            content = dataclasses.asdict(content)
        elif dataclasses.is_dataclass(content) and not isinstance(content, type):
            content = without_defaults(content)
        found[field.name] = content
    return found
