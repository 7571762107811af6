"""Workloads of fused kernels to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from convoy.errors import InvalidWorkload
from convoy.ir.compact import without_defaults
from convoy.ir.workload import Workload


def check_there_and_back(w: Workload) -> None:
    """A workload is the same when read from JSON, with all fields or without defaults."""
    for fields in (w.to_json(), without_defaults(w)):
        again = Workload.from_json(json.loads(json.dumps(fields)))
        assert again == w and again.key == w.key


def check_distinct(found: list[Workload], count: int) -> None:
    """These are so many workloads, and as many keys."""
    assert len({w.key for w in found}) == len(set(found)) == len(sorted(found)) == count


def check_changed_json(w: Workload, part: str, changes: dict[str, Any]) -> None:
    """With other fields of a part it is no workload."""
    data = w.to_json()
    data[part].update(changes)
    with pytest.raises(InvalidWorkload):
        Workload.from_json(data)


def check_required(w: Workload, part: str, field: str) -> None:
    """Without a field of a part it is no workload, and the error names the field."""
    data = w.to_json()
    del data[part][field]
    with pytest.raises(InvalidWorkload, match=field):
        Workload.from_json(data)
