"""Reading `save_json` files.

A file is a list of nodes that refer to each other by index; 0 is null. Values are strings. Names
of types, strings in place of string nodes and missing fields of older versions are understood
without looking at the version; `earlier_versions` has what depends on it.
"""

from __future__ import annotations

import json
import re
from types import GeneratorType
from typing import Any

from convoy.errors import ConvoyError, RelaySyntaxError
from convoy.relay.ast import Expr
from convoy.relay.collection import without_collection
from convoy.relay.infer import infer_module
from convoy.relay.json_format import (  # noqa: F401
    decode_data_types,
    decode_expressions,
    decode_types,
    decode_values,
)
from convoy.relay.json_format.decode_attributes import decode_attrs
from convoy.relay.json_format.decoding import DECODERS, Step, canonical_key
from convoy.relay.json_format.scalars import string_of, to_int
from convoy.relay.json_format.tensor_bytes import decode_base64
from convoy.relay.module import IRModule
from convoy.relay.types import Type


@without_collection
def load_json(text: str | bytes) -> Any:
    """Read a `save_json` file; infer the types of a module.

    Returns:
        A module, an expression or a type.

    Raises:
        RelaySyntaxError: Not such a file, or a damaged one.
        RelayTypeError, UnsupportedOp: As `parse`.
    """
    root = _File(text).root()
    if isinstance(root, IRModule):
        return infer_module(root)
    if not isinstance(root, (Expr, Type)):
        raise RelaySyntaxError(f"a saved {type(root).__name__}", "a module, expression or type")
    return root


def load_metadata(text: str) -> dict[str, list[Any]]:
    """Read the table of a text's `#[metadata]` section: objects by type key."""
    table = _File(text).root()
    if not isinstance(table, dict) or not all(isinstance(v, tuple) for v in table.values()):
        raise RelaySyntaxError("metadata of another form", "a map from type keys to arrays")
    return {str(key): list(value) for key, value in table.items()}


class _File:
    def __init__(self, text: str | bytes) -> None:
        try:
            data = json.loads(text)
        except RecursionError:
            raise RelaySyntaxError("JSON nested too deep") from None
        except ValueError as bad:
            raise RelaySyntaxError(f"text that is no JSON ({bad})") from None
        except TypeError:
            raise RelaySyntaxError(f"a {type(text).__name__}", "text") from None
        nodes = data.get("nodes") if isinstance(data, dict) else None
        if not isinstance(nodes, list) or not all(isinstance(n, dict) for n in nodes):
            raise RelaySyntaxError("JSON without a list of nodes", "a file of tvm.ir.save_json")
        self._nodes: list[dict[str, Any]] = nodes
        self._root = data.get("root")
        self.version = _version(data.get("attrs"))
        arrays = data.get("b64ndarrays", [])
        self._arrays: list[Any] = arrays if isinstance(arrays, list) else []
        self._done: dict[int, Any] = {0: None}
        # Depth and size of each decoded array, by identity.
        self.measures: dict[int, tuple[int, int]] = {}

    def root(self) -> Any:
        """Decode the root of the file."""
        if not isinstance(self._root, int) or isinstance(self._root, bool):
            raise RelaySyntaxError("JSON without a root", "the index of a node")
        return self._decode(self._root)

    def _decode(self, root: int) -> Any:
        """Decode a node and all that it refers to, without recursion; detect cycles."""
        stack: list[tuple[int, Step]] = []
        active: set[int] = set()
        index, value = root, None
        if index not in self._done:
            stack.append((index, self._start(index, active)))
        while stack:
            index, step = stack[-1]
            try:
                wanted = step.send(value)
            except StopIteration as done:
                stack.pop()
                active.discard(index)
                value = self._done[index] = done.value
                continue
            except ConvoyError as error:
                raise self._placed(error, index) from None
            if wanted in self._done:
                value = self._done[wanted]
            else:
                stack.append((wanted, self._start(wanted, active)))
                value = None
        return self._done[root]

    def _placed(self, error: ConvoyError, index: int) -> ConvoyError:
        return error.reworded(f"node {index}: {error.got}")

    def _start(self, index: int, active: set[int]) -> Step:
        if not 0 <= index < len(self._nodes):
            raise RelaySyntaxError(f"node {index}, of {len(self._nodes)}")
        if index in active:
            raise RelaySyntaxError(f"node {index} refers to itself", "nodes without circles")
        active.add(index)
        return Node(self, self._nodes[index]).decode()

    def array(self, index: int) -> Any:
        """Decode a tensor of the file."""
        if not 0 <= index < len(self._arrays) or not isinstance(self._arrays[index], str):
            raise RelaySyntaxError(f"tensor {index} of {len(self._arrays)}")
        return decode_base64(self._arrays[index])

    def string_at(self, text: str) -> str | None:
        """Return the string of the string node that `text` is the index of, or None."""
        index = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not 0 < index < len(self._nodes):
            return None
        node = self._nodes[index]
        return string_of(node) if node.get("type_key") in _STRINGS else None


_STRINGS = ("runtime.String", "ffi.String")


def _version(attrs: Any) -> tuple[int, int]:
    """Return the version that wrote a file, that of 0.18 where it does not say so."""
    text = str(attrs.get("tvm_version", "")) if isinstance(attrs, dict) else ""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", text)
    return (int(found[1]), int(found[2])) if found else (0, 18)


class Node:
    """One node of a file, as the decoders see it."""

    def __init__(self, file: _File, raw: dict[str, Any]) -> None:
        self.file, self.raw = file, raw
        self.key = canonical_key(str(raw.get("type_key", "")))
        attrs = raw.get("attrs", {})
        self.fields: dict[str, Any] = attrs if isinstance(attrs, dict) else {}

    def decode(self) -> Step:
        """Decode the node; yield for other nodes."""
        decoder = DECODERS.get(self.key)
        if decoder is None and self.key.startswith("relay.attrs."):
            decoder = decode_attrs
        if decoder is None:
            raise RelaySyntaxError(f"a node of type '{self.key[:64]}'", "a node of Relay")
        result = decoder(self)
        return (yield from result) if isinstance(result, GeneratorType) else result

    def text(self, field: str) -> str:
        """Return a field's string as it is in the file."""
        if field not in self.fields:
            raise RelaySyntaxError(f"a {self.key} without its field '{field}'")
        return str(self.fields[field])

    def int(self, field: str) -> int:
        """Return an integer field."""
        return to_int(self.text(field), f"{self.key}.{field}")

    def string(self, field: str) -> str:
        """Return a field of type String: that of a string node, in old files the text itself."""
        text = self.text(field)
        found = self.file.string_at(text)
        return text if found is None else found

    def ref(self, field: str) -> Step:
        """Yield for the object that a field refers to; None for a null or missing one."""
        if field not in self.fields:
            return None
        return (yield self.int(field))

    def data(self) -> Step:
        """Yield for the objects of an array node."""
        items = self.raw.get("data", [])
        if not isinstance(items, list):
            raise RelaySyntaxError(f"a {self.key} whose data is no list")
        out = []
        for item in items:
            if not isinstance(item, int) or isinstance(item, bool):
                raise RelaySyntaxError(f"index {str(item)[:32]!r}", "the number of a node")
            out.append((yield item))
        return out

    def tensor(self, field: str) -> Any:
        """Return the tensor of a field."""
        return self.file.array(self.int(field))
