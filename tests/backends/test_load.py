"""One candidate as a callable."""

from __future__ import annotations

from typing import Any

import pytest

from convoy.backends import load
from convoy.backends.base import Binary
from convoy.ir.device import Device


def test_a_binary_becomes_a_module_of_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def create_module(entries: Any, blobs: Any, *, arch: int) -> Any:
        made.append((entries, blobs, arch))
        return {entry["symbol"]: entry for entry in entries}

    monkeypatch.setattr(load, "create_module", create_module)
    binary = Binary({"kernel": "k", "programmatic": True}, {"hash": b"library"})
    call = load.load_binary(binary, Device(), programmatic=False)
    assert call["kernel"] == "k" and call["programmatic"] is False
    assert made == [([call], binary.blobs, Device().arch)]
    assert binary.entry["programmatic"], "the entry of the candidate stays as it is"
