"""Texts of which TVM 0.18 gave the canonical form or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convoy import relay
from convoy.errors import ConvoyError
from convoy.relay.printer import without_comments

from ..conftest import corpus_path

# Here convoy is meant to differ.
FRIENDLIER = {"graph_reuse_across_defs"}  # numbers are those of one definition


def cases() -> dict[str, Any]:
    path = corpus_path()
    if path is None:
        return {"corpus": None}
    return json.loads((path / "parse" / "parse_cases.json").read_text())


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_case(corpus: Path, name: str) -> None:
    case = CASES[name]
    if case["ok"]:
        assert without_comments(relay.parse(case["text"]).astext()) == case["canonical"]
    elif name in FRIENDLIER:
        assert "negative(%y)" in relay.parse(case["text"]).astext()
    else:
        with pytest.raises(ConvoyError) as caught:
            relay.parse(case["text"])
        assert caught.value.span.source_name == "from_string"  # type: ignore[attr-defined]
