"""save_json files: our own both ways, and files of other versions."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from convoy import relay
from convoy.errors import (
    ConvoyError,
    RelaySyntaxError,
    RelayTypeError,
    UnsupportedDtype,
    UnsupportedOp,
)
from convoy.relay.json_format.tensor_bytes import MAGIC, decode, encode

from ..running import HEAD

TEXT = f"""{HEAD}def @main(%x: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(4, 4, 3, 3), float32]) {{
  %0 = nn.conv2d(%x, %w, strides=[2i64, 2i64], padding=[1, 1]);
  let %a = clip(%0, a_min=-1e-05f, a_max=inff);
  %1 = split(%a, indices_or_sections=[1, 3], axis=1);
  %2 = (%1.0, %1.1);
  %3 = fn (%p: Tensor[(1, 4, 4, 4), float32], Primitive=1, Composite="a.b") {{ nn.relu(%p) }};
  (concatenate(%2, axis=1), %3(%a), cast(%0, dtype="float16"), squeeze(1f), add(%0, %0))
}}
"""


def test_round_trip() -> None:
    mod = relay.parse(TEXT)
    assert relay.structural_equal(mod, relay.load_json(relay.save_json(mod)))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda node: pickle.loads(pickle.dumps(node))])
def test_pickles(copied: Callable[[Any], Any]) -> None:
    mod = relay.transform.InferType()(relay.parse(TEXT))
    again = copied(mod)
    assert relay.structural_equal(again, mod)
    function = copied(mod["main"])
    assert relay.structural_equal(function, mod["main"]) and function is not mod["main"]
    assert function.checked_type == mod["main"].checked_type
    assert copied(relay.op.get("add")) is relay.op.get("add")
    attrs = copied(relay.clip(relay.const(1.0), 0.0, 2.0).attrs)
    assert attrs.a_max == 2.0


def test_pickles_of_deep_networks() -> None:
    x = y = relay.var("x", shape=(2,))
    for _ in range(2000):
        y = relay.exp(y)
    function = relay.Function([x], y)
    assert relay.structural_equal(copy.deepcopy(function), function)


def test_form_of_the_file() -> None:
    data = json.loads(relay.save_json(relay.parse(TEXT)))
    assert data["nodes"][0] == {"type_key": ""}
    assert data["root"] == 1
    assert data["nodes"][1]["type_key"] == "IRModule"
    assert data["attrs"] == {"tvm_version": "0.18.0"}
    keys = {n["type_key"] for n in data["nodes"]}
    assert {"relay.attrs.Conv2DAttrs", "runtime.BoxInt", "relay.Id", "VirtualDevice"} <= keys
    conv = next(n for n in data["nodes"] if n["type_key"] == "relay.attrs.Conv2DAttrs")
    layout = data["nodes"][int(conv["attrs"]["data_layout"])]
    assert layout == {"type_key": "runtime.String", "repr_str": "NCHW"}
    assert conv["attrs"]["groups"] == "1"
    assert all(isinstance(v, str) for n in data["nodes"] for v in n.get("attrs", {}).values())


def test_an_expression() -> None:
    x = relay.var("x", shape=(2, relay.Any()))
    again = relay.load_json(relay.save_json(relay.Function([x], relay.exp(x))))
    assert isinstance(again, relay.Function)
    assert again.params[0].type_annotation == relay.TensorType((2, relay.Any()))


DTYPES = ["int8", "uint8", "int16", "int64", "uint32", "float16", "float32", "float64", "bool"]


class TestTensors:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
    def test_bytes(self, dtype: str, shape: tuple[int, ...]) -> None:
        value = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
        again = decode(encode(value))
        assert again.dtype == value.dtype
        np.testing.assert_array_equal(again, value)

    def test_bfloat16(self) -> None:
        value = np.array([1.5, -2], ml_dtypes.bfloat16)
        assert decode(encode(value)).dtype == value.dtype

    def test_layout_of_the_bytes(self) -> None:
        raw = encode(np.array([1, 2], "float32"))
        head = struct.pack("<QQiiiBBHqq", MAGIC, 0, 1, 0, 1, 2, 32, 1, 2, 8)
        assert raw == head + struct.pack("<ff", 1, 2)

    @pytest.mark.parametrize("cut", [0, 10, 30, 47, -1])
    def test_truncated(self, cut: int) -> None:
        with pytest.raises(RelaySyntaxError, match="whole tensor"):
            decode(encode(np.zeros(4, "float32"))[:cut])

    def test_damaged(self) -> None:
        raw = bytearray(encode(np.zeros(4, "float32")))
        raw[0] ^= 1
        with pytest.raises(RelaySyntaxError, match="magic"):
            decode(bytes(raw))
        raw = bytearray(encode(np.zeros(4, "float32")))
        raw[28] = 3
        with pytest.raises(UnsupportedDtype):
            decode(bytes(raw))
        raw[24:28] = struct.pack("<i", 1 << 30)
        with pytest.raises(RelaySyntaxError, match="dimensions"):
            decode(bytes(raw))


class File:
    """A hand-written file."""

    def __init__(self, version: str = "0.18.0") -> None:
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]
        self.arrays: list[str] = []
        self.version = version

    def node(self, key: str, data: list[int] | None = None, **attrs: Any) -> int:
        node: dict[str, Any] = {"type_key": key}
        if data is not None:
            node["data"] = data
        if "repr_str" in attrs:
            node["repr_str"] = attrs.pop("repr_str")
        if "keys" in attrs:
            node["keys"] = attrs.pop("keys")
        if attrs:
            node["attrs"] = {k: str(v) for k, v in attrs.items()}
        self.nodes.append(node)
        return len(self.nodes) - 1

    def text(self, root: int) -> str:
        return json.dumps(
            {
                "root": root,
                "nodes": self.nodes,
                "b64ndarrays": self.arrays,
                "attrs": {"tvm_version": self.version},
            }
        )

    def tensor_type(self, *shape: int) -> int:
        dims = [self.node("IntImm", dtype="int32", value=d) for d in shape]
        return self.node("relay.TensorType", shape=self.node("Array", dims), dtype="float32")


def old_file() -> str:
    """A module as TVM 0.6 wrote it: other names of types, plain strings, fewer fields."""
    f = File("0.6.0")
    ty = f.tensor_type(1, 4, 8, 8)
    x = f.node("relay.Var", vid=f.node("relay.Id", name_hint="x"), type_annotation=ty)
    pool = f.node("Array", [f.node("IntImm", dtype="int32", value=2)] * 2)
    attrs = f.node("relay.attrs.MaxPool2DAttrs", pool_size=pool, strides=pool, padding=pool,
                   layout="NCHW", ceil_mode=0)  # fmt: skip
    op = f.node("relay.Op", repr_str="nn.max_pool2d")
    call = f.node("relay.Call", op=op, args=f.node("Array", [x]), attrs=attrs, type_args=0)
    pair = f.node("relay.Tuple", fields=f.node("Array", [call, call]))
    field = f.node("relay.TupleGetItem", tuple_value=pair, index=1)
    fn = f.node("relay.Function", params=f.node("Array", [x]), body=field, ret_type=0, attrs=0,
                type_params=0)  # fmt: skip
    main = f.node("relay.GlobalVar", name_hint="main")
    functions = f.node("Map", [main, fn])
    names = f.node("StrMap", [main], keys=["main"])
    return f.text(f.node("relay.Module", functions=functions, global_var_map_=names))


def test_a_file_of_tvm_06() -> None:
    main = relay.load_json(old_file())["main"]
    pair = main.body.tuple_value
    assert pair.fields[0] is pair.fields[1]
    assert pair.fields[0].attrs.dilation == (1, 1)  # a field that 0.6 did not have
    assert pair.fields[0].attrs.layout == "NCHW"
    assert main.params[0].name_hint == "x"


def test_strings_with_unprintable_bytes() -> None:
    f = File()
    text = "ü\n".encode()
    index = f.node("runtime.String")
    f.nodes[index]["repr_b64"] = base64.b64encode(struct.pack("<Q", len(text)) + text).decode()
    var = f.node("relay.Var", vid=f.node("relay.Id", name_hint=index), type_annotation=0)
    assert relay.load_json(f.text(var)).name_hint == "ü\n"


class TestRefusals:
    def test_circles(self) -> None:
        f = File()
        f.nodes.append(
            {"type_key": "relay.TupleGetItem", "attrs": {"tuple_value": "1", "index": "0"}}
        )
        with pytest.raises(RelaySyntaxError, match="refers to itself"):
            relay.load_json(f.text(1))

    def test_data_types(self) -> None:
        f = File()
        with pytest.raises(RelaySyntaxError, match=r"RefCreate\.value"):
            relay.load_json(f.text(f.node("relay.RefCreate", value=0)))

    def test_unknown_operator(self) -> None:
        text = relay.save_json(relay.parse(TEXT)).replace('"nn.relu"', '"nn.rellu"')
        with pytest.raises(UnsupportedOp, match=r"node \d+: 'nn\.rellu'.*'nn\.relu'"):
            relay.load_json(text)

    def test_attributes_of_another_operator(self) -> None:
        data = json.loads(relay.save_json(relay.parse(TEXT)))
        keys = [n["type_key"] for n in data["nodes"]]
        clip = keys.index("relay.attrs.ClipAttrs")
        for node in data["nodes"]:
            if node["type_key"] == "relay.Call" and node["attrs"]["attrs"] != "0":
                node["attrs"]["attrs"] = str(clip)
        with pytest.raises(RelayTypeError, match=r"attributes of class relay\.attrs\.ClipAttrs"):
            relay.load_json(json.dumps(data))

    def test_attributes_of_another_kind(self) -> None:
        """SqueezeAttrs have an axis as well, which may be null."""
        text = f"{HEAD}def @main(%x: Tensor[(2, 3), float32]) {{ squeeze(%x) }}"
        saved = relay.save_json(relay.parse(text)).replace('"squeeze"', '"nn.softmax"')
        with pytest.raises(RelayTypeError, match="axis"):
            relay.load_json(saved)

    def test_missing_field(self) -> None:
        f = File()
        with pytest.raises(RelaySyntaxError, match="name_hint"):
            relay.load_json(f.text(f.node("GlobalVar", span=0)))

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", "null", '{"nodes": 3}', '{"nodes": [], "root": 5}', "[" * 5000, None],
    )
    def test_no_such_file(self, text: str | None) -> None:
        with pytest.raises(RelaySyntaxError):
            relay.load_json(text)  # type: ignore[arg-type]

    def test_deep_chain(self) -> None:
        """A chain of ten thousand nodes is no problem, one of types is refused."""
        f = File()
        last = f.node("relay.Constant")
        f.nodes[last]["attrs"] = {"data": "0"}
        f.arrays.append(base64.b64encode(encode(np.zeros((), "float32"))).decode())
        op = f.node("Op", repr_str="exp")
        for _ in range(10_000):
            last = f.node("relay.Call", op=op, args=f.node("Array", [last]), attrs=0)
        assert isinstance(relay.load_json(f.text(last)), relay.Call)
        ty = f.tensor_type(1)
        for _ in range(10_000):
            ty = f.node("TupleType", fields=f.node("Array", [ty, ty]))
        var = f.node("relay.Var", vid=f.node("relay.Id", name_hint=0), type_annotation=ty)
        with pytest.raises(ConvoyError, match="deep"):
            relay.load_json(f.text(var))


def test_data_types_matches_and_references() -> None:
    mod = relay.parse(
        '#[version = "0.0.5"]\n'
        "type Tree[A] { Node(Tree[A], A, Tree[A]), Leaf }\n"
        "def @sum(%t: Tree[float32]) -> float32 {\n"
        "  let %r = ref(0f);\n"
        "  let %u = match? (%t) {\n"
        "    Node(%l, %v, _) => ref_write(%r, @sum(%l) + %v),\n"
        "    Leaf => (),\n"
        "  };\n"
        "  ref_read(%r)\n"
        "}\n"
        "def @main() { @sum(Node(Node(Leaf, 1f, Leaf), 2f, Leaf)) }\n"
    )
    again = relay.load_json(relay.save_json(mod))
    assert relay.structural_equal(again, mod)
    assert again.astext() == mod.astext()
    values = [relay.create_executor("debug", mod=m).evaluate()().numpy() for m in (mod, again)]
    assert values == [3, 3]


def test_the_prelude() -> None:
    mod = relay.prelude.Prelude().mod
    again = relay.load_json(relay.save_json(mod))
    assert relay.structural_equal(again, mod)


@pytest.mark.parametrize(
    "type_",
    [
        relay.TensorType((2, relay.Any()), "int8"),
        relay.FuncType(
            [relay.RefType(relay.TypeVar("A"))], relay.TypeVar("A"), [relay.TypeVar("A")]
        ),
        relay.TypeCall(relay.GlobalTypeVar("List"), [relay.TupleType([])]),
    ],
)
def test_types_alone(type_: relay.Type) -> None:
    assert relay.load_json(relay.save_json(type_)) == type_


def test_patterns_nested_too_deep() -> None:
    pattern: relay.adt.Pattern = relay.PatternWildcard()
    with pytest.raises(RelayTypeError, match="nested 101 deep"):
        for _ in range(200):
            pattern = relay.PatternTuple([pattern])
