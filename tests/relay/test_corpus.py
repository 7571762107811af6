"""Modules that TVM 0.18 printed, saved and ran."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay.schema import attrs_class

from .conftest import corpus_names
from .running import relative_error, run_graph, run_stock

SMALL, MODELS = corpus_names("small"), corpus_names("models")
TOLERANCE = {"float32": 1e-5, "float64": 1e-5, "float16": 1e-2}


def folder(corpus: Path, manifest: dict[str, Any], name: str) -> Path:
    return corpus / manifest[name]["kind"]


@pytest.mark.parametrize("name", SMALL + MODELS if SMALL != MODELS else SMALL)
class TestFormats:
    @pytest.fixture
    def base(self, corpus: Path, manifest: dict[str, Any], name: str) -> Path:
        return folder(corpus, manifest, name) / name

    def test_text_and_json_give_one_module(self, base: Path) -> None:
        text = relay.parse(base.with_suffix(".relay").read_text(), base.name)
        saved = relay.load_json(base.with_suffix(".json").read_text())
        assert relay.structural_equal(text, saved)

    def test_prints_as_tvm_printed(self, base: Path) -> None:
        """Byte for byte, types and spans included."""
        text = base.with_suffix(".relay").read_text()
        printed = relay.load_json(base.with_suffix(".json").read_text()).astext()
        want, got = (t.partition("\n#[metadata]")[0] for t in (text, printed))
        assert got == want

    def test_reads_back_what_it_prints(self, base: Path) -> None:
        mod = relay.parse(base.with_suffix(".relay").read_text())
        assert relay.structural_equal(mod, relay.parse(mod.astext()))

    def test_reads_back_what_it_saves(self, base: Path) -> None:
        mod = relay.parse(base.with_suffix(".relay").read_text())
        assert relay.structural_equal(mod, relay.load_json(relay.save_json(mod)))

    def test_saves_as_tvm_saved(self, base: Path) -> None:
        """Node for node, apart from spans and numbering."""
        mod = relay.parse(base.with_suffix(".relay").read_text())
        want = json.loads(base.with_suffix(".json").read_text())
        assert unfolded(json.loads(relay.save_json(mod))) == unfolded(want)

    def test_types_are_those_of_the_oracle(
        self, base: Path, manifest: dict[str, Any], name: str
    ) -> None:
        mod = relay.parse(base.with_suffix(".relay").read_text())
        entry = manifest[name]
        got = [
            [p.name_hint, dims(p.checked_type), p.checked_type.dtype] for p in mod["main"].params
        ]
        assert got == entry["params"]
        assert nested(mod["main"].checked_type.ret_type) == entry["ret_type"]


_SKIPPED = {"span", "source_map"}


def unfolded(file: dict[str, Any]) -> Any:
    """A saved file with every reference replaced by a hash of what it refers to."""
    nodes, digests = file["nodes"], {0: "null"}

    def digest(index: int) -> str:
        if index not in digests:
            node = nodes[index]
            key = node["type_key"]
            parts = [key, node.get("repr_str", ""), node.get("keys", [])]
            data = [digest(i) for i in node.get("data", [])]
            if key == "Map" and "keys" in node:
                parts = [key, sorted(zip(node["keys"], data, strict=True))]
            else:
                parts.append(data)
            for name, value in sorted(node.get("attrs", {}).items()):
                # The corpus's variables of functions have types from before parameters were bound.
                if name not in _SKIPPED and (key, name) != ("GlobalVar", "_checked_type_"):
                    parts += [name, field(key, name, value)]
            digests[index] = hashlib.sha256(repr(parts).encode()).hexdigest()
        return digests[index]

    def field(key: str, name: str, value: str) -> str:
        if key == "relay.Constant" and name == "data":
            return file["b64ndarrays"][int(value)]
        cls = attrs_class(key)
        kinds = {f.name: f.kind for f in cls.fields} if cls else _PLAIN.get(key, {})
        plain = kinds.get(name, "object") in ("int", "bool", "double", "dtype", "text")
        return value if plain else digest(int(value))

    return digest(file["root"])


_PLAIN = {
    "IntImm": {"value": "int", "dtype": "dtype"},
    "FloatImm": {"value": "double", "dtype": "dtype"},
    "relay.TensorType": {"dtype": "dtype"},
    "relay.TupleGetItem": {"index": "int"},
    "tir.Any": {"dtype": "dtype"},
    "VirtualDevice": {"device_type_int": "int", "virtual_device_id": "int"},
    "TypeVar": {"kind": "int"},
}


def dims(type_: relay.TensorType) -> list[Any]:
    return [d if isinstance(d, int) else "T.Any()" for d in type_.shape]


def nested(type_: relay.Type) -> Any:
    """A type as the manifest writes it."""
    if isinstance(type_, relay.TupleType):
        return {"tuple": [nested(f) for f in type_.fields]}
    return [dims(type_), type_.dtype]


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
@pytest.mark.parametrize("name", SMALL)
def test_small_outputs(corpus: Path, manifest: dict[str, Any], name: str, bound: bool) -> None:
    """Outputs equal the oracle's, with parameters as constants and as inputs."""
    base = corpus / "small" / name
    if not base.with_suffix(".npz").exists():
        pytest.skip("the oracle has no outputs of it")
    mod = relay.parse(base.with_suffix(".relay").read_text(), name)
    arrays = dict(np.load(base.with_suffix(".npz")))
    inputs = {k[3:]: v for k, v in arrays.items() if k.startswith("in_")}
    params = {}
    if base.with_suffix(".params").exists():
        params = relay.load_param_dict(base.with_suffix(".params").read_bytes())
    if "if" in name:
        got = run_stock(mod, *inputs.values())
    elif bound:
        got = run_graph(mod, inputs, params)
    else:
        got = run_graph(mod, {**inputs, **params})
    assert len(got) == len(arrays) - len(inputs)
    for i, value in enumerate(got):
        want = arrays[f"out_{i}"]
        assert relative_error(value, want) <= TOLERANCE.get(str(want.dtype), 0)


def parameters(corpus: Path, entry: dict[str, Any]) -> dict[str, np.ndarray]:
    """The parameters that the oracle used, made by the corpus's own script."""
    spec = importlib.util.spec_from_file_location("init_params", corpus / "init_params.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.init_params(entry["params"])


FAST = {"mlp", "squeezenet_v1_1", "corpus"}


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in MODELS]
)
def test_model_outputs(corpus: Path, manifest: dict[str, Any], name: str) -> None:
    base = corpus / "models" / name
    if not base.with_suffix(".npz").exists():
        pytest.skip("the oracle has no outputs of it")
    mod = relay.parse(base.with_suffix(".relay").read_text(), name)
    # What goes into the last softmax too: probabilities of random weights are nearly equal.
    main = mod["main"]
    both = relay.Tuple([main.body, main.body.args[0]])
    mod = relay.IRModule.from_expr(relay.Function(main.params, both))
    entry = manifest[name]
    shape = entry["params"][0][1]
    data = np.random.default_rng(7).uniform(-1, 1, shape).astype("float32")
    got = run_graph(mod, {"data": data}, parameters(corpus, entry))
    want = np.load(base.with_suffix(".npz"))
    for i, value in enumerate(got):
        assert relative_error(value, want[f"out_{i}"]) <= 1e-5
