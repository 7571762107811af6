"""Decoders of containers and plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from convoy.errors import RelaySyntaxError
from convoy.relay.attrs import Attrs, Int64
from convoy.relay.json_format.decoding import Step, decodes, expect
from convoy.relay.json_format.scalars import string_of, to_float, to_int
from convoy.relay.lazy import tvm
from convoy.relay.source import Span
from convoy.relay.virtual_device import VirtualDevice

if TYPE_CHECKING:
    from convoy.relay.json_format.reader import Node


_DEVICE_FIELDS = ("device_type_int", "virtual_device_id")


@decodes("")
def null(node: Node) -> Any:
    return None


# Arrays beyond these are written by nothing; printing them recurses and repeats shared ones.
_MAX_ARRAY_DEPTH = 16
_MAX_ARRAY_SIZE = 1_000_000


@decodes("Array")
def array(node: Node) -> Step:
    items = tuple((yield from node.data()))
    inner = [node.file.measures.get(id(item), (0, 1)) for item in items]
    depth = 1 + max((d for d, _ in inner), default=0)
    size = 1 + sum(s for _, s in inner)
    if depth > _MAX_ARRAY_DEPTH or size > _MAX_ARRAY_SIZE:
        raise RelaySyntaxError(
            f"an array nested {depth} deep with {size} elements",
            f"at most {_MAX_ARRAY_DEPTH} deep with {_MAX_ARRAY_SIZE} elements",
        )
    node.file.measures[id(items)] = (depth, size)
    return items


@decodes("Map")
def mapping(node: Node) -> Step:
    items = yield from node.data()
    keys = node.raw.get("keys")
    if keys is None:
        if len(items) % 2:
            raise RelaySyntaxError("a map with a key that has no value")
        keys, items = items[::2], items[1::2]
    if not isinstance(keys, list) or len(keys) != len(items):
        raise RelaySyntaxError("a map with unequal numbers of keys and values")
    try:
        return dict(zip(keys, items, strict=False))
    except TypeError:
        raise RelaySyntaxError("a map with keys that are no names") from None


@decodes("runtime.String")
def string(node: Node) -> Any:
    return string_of(node.raw)


@decodes("runtime.BoxInt", "runtime.BoxBool")
def box_int(node: Node) -> Any:
    return to_int(str(node.raw.get("repr_str", "")), node.key)


@decodes("runtime.BoxFloat")
def box_float(node: Node) -> Any:
    return to_float(str(node.raw.get("repr_str", "")), node.key)


@decodes("IntImm")
def int_imm(node: Node) -> Any:
    value, dtype = node.int("value"), node.text("dtype")
    if dtype == "bool":
        return bool(value)
    return Int64(value) if dtype == "int64" else value


@decodes("FloatImm")
def float_imm(node: Node) -> Any:
    return to_float(node.text("value"), "FloatImm.value")


@decodes("DictAttrs")
def dict_attrs(node: Node) -> Step:
    values = yield from node.ref("__dict__")
    return Attrs(None, {str(k): v for k, v in expect(values or {}, dict, node, "__dict__").items()})


@decodes("VirtualDevice")
def virtual_device(node: Node) -> Any:
    """Decode a device; its target is dropped."""
    numbers = [node.int(f) if f in node.fields else -1 for f in _DEVICE_FIELDS]
    if not -1 <= numbers[0] < 64 or not -1 <= numbers[1] < 2**16:
        raise RelaySyntaxError(f"device {numbers[1]} of type {numbers[0]}", "a device of DLPack")
    device = None if numbers[0] < 0 else tvm.device(numbers[0], max(numbers[1], 0))
    scope = node.string("memory_scope") if "memory_scope" in node.fields else ""
    return VirtualDevice(device, memory_scope=scope)


@decodes("SourceMap", "Source", "EnvFunc", "Target")
def opaque(node: Node) -> Any:
    """Drop a node that does not affect the meaning of a program."""
    return None


@decodes("SourceName")
def source_name(node: Node) -> Any:
    return str(node.raw.get("repr_str", node.fields.get("name", "")))


@decodes("Span")
def span(node: Node) -> Step:
    name = yield from node.ref("source_name")
    end, end_column = (node.int(f) if f in node.fields else 0 for f in ("end_line", "end_column"))
    source = None if name is None else str(name)
    return Span(source, node.int("line"), end, node.int("column"), end_column)


@decodes("SequentialSpan")
def sequential_span(node: Node) -> Step:
    spans = yield from node.ref("spans")
    found = [s for s in spans or () if isinstance(s, Span)]
    return found[0] if found else None
