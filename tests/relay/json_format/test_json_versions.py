"""Files as older versions of TVM wrote them, made of files of 0.18 by undoing what each changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convoy import relay
from convoy.relay.schema import attrs_class

from ..conftest import corpus_names
from .test_json import TEXT

VERSIONS = ["0.17.0", "0.16.0", "0.15.0", "0.14.0", "0.9.0", "0.8.0", "0.7.0", "0.6.1", "0.6.0"]
Node = dict[str, Any]


def older(text: str, version: str) -> str:
    """A file of 0.18 in the form of an older version."""
    data = json.loads(text)
    nodes: list[Node] = data["nodes"]
    number = tuple(int(part) for part in version.split(".")[:2])
    if number < (0, 17):
        unboxed(nodes)
    if number < (0, 9):
        without_fields(nodes, ("virtual_device_",))
    if number < (0, 8):
        without_fields(nodes, ("global_infos", "struct_info_"))
        for node in nodes:
            if node["type_key"] == "IRModule":
                node["attrs"].pop("attrs", None)
    if number < (0, 7):
        renamed(nodes)
        inlined_strings(nodes)
    data["attrs"]["tvm_version"] = version
    return json.dumps(data)


def unboxed(nodes: list[Node]) -> None:
    """Numbers as IntImm, where 0.17 began to box them."""
    for node in nodes:
        if node["type_key"] == "runtime.BoxInt":
            value = node.pop("repr_str")
            node["type_key"] = "IntImm"
            node["attrs"] = {"dtype": "int32", "span": "0", "value": value}


def without_fields(nodes: list[Node], names: tuple[str, ...]) -> None:
    for node in nodes:
        for name in names:
            node.get("attrs", {}).pop(name, None)


NAMES_06 = {
    "IRModule": "relay.Module", "GlobalVar": "relay.GlobalVar", "Op": "relay.Op",
    "TupleType": "relay.TupleType", "FuncType": "relay.FuncType", "TypeVar": "relay.TypeVar",
    "IncompleteType": "relay.IncompleteType", "tir.Any": "Any", "SourceName": "relay.SourceName",
    "Span": "relay.Span",
}  # fmt: skip


def renamed(nodes: list[Node]) -> None:
    for node in nodes:
        node["type_key"] = NAMES_06.get(node["type_key"], node["type_key"])
        if node["type_key"] == "Map" and "keys" in node:
            node["type_key"] = "StrMap"


def inlined_strings(nodes: list[Node]) -> None:
    """Texts in the fields themselves: 0.7 made nodes of them."""
    texts = {
        str(i): node.get("repr_str", "")
        for i, node in enumerate(nodes)
        if node["type_key"] == "runtime.String"
    }
    for node in nodes:
        cls = attrs_class(node["type_key"])
        fields = {f.name for f in cls.fields if f.kind == "string"} if cls else {"name_hint"}
        for name, value in node.get("attrs", {}).items():
            if name in fields and value in texts:
                node["attrs"][name] = texts[value]


@pytest.mark.parametrize("version", VERSIONS)
def test_program(version: str) -> None:
    mod = relay.parse(TEXT)
    again = relay.load_json(older(relay.save_json(mod), version))
    assert relay.structural_equal(mod, again)
    assert again.astext() == mod.astext()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_form_is_older(version: str) -> None:
    text = older(relay.save_json(relay.parse(TEXT)), version)
    assert version in text
    number = int(version.split(".")[1])
    assert ('"virtual_device_"' in text) == (number >= 9)
    assert ('"IRModule"' in text) == (number >= 7)
    assert ('"runtime.BoxInt"' in text) == (number >= 17)


@pytest.mark.parametrize("name", corpus_names("small"))
def test_corpus(corpus: Path, name: str) -> None:
    text = (corpus / "small" / f"{name}.json").read_text()
    mod = relay.load_json(text)
    for version in VERSIONS:
        if name == "conv2d_transpose_oihw" and version < "0.8":
            continue  # which had no such weights
        assert relay.structural_equal(mod, relay.load_json(older(text, version))), version
