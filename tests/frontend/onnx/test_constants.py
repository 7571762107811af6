"""Inputs of a model that are given as constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

onnx = pytest.importorskip("onnx")

import convoy  # noqa: E402
from convoy import errors  # noqa: E402
from convoy.cli.main import app  # noqa: E402
from convoy.cli.options import constants  # noqa: E402
from convoy.onnx.call import CONVERTERS  # noqa: E402

from .support import info, model, run, values  # noqa: E402


def _branches_of_a_rate() -> Any:
    """A network that halves the last axis at a rate of 16000; else it sums over it."""
    branches = [
        onnx.helper.make_graph(nodes, "branch", [], [info(name, None)])
        for name, nodes in (
            ("a", [onnx.helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2], strides=[2])]),
            ("b", [onnx.helper.make_node("ReduceSum", ["x", "axes"], ["b"])]),
        )
    ]
    nodes = [
        onnx.helper.make_node("Equal", ["rate", "wide"], ["is_wide"]),
        onnx.helper.make_node(
            "If", ["is_wide"], ["y"], then_branch=branches[0], else_branch=branches[1]
        ),
    ]
    weights = {"wide": np.array(16000), "axes": np.array([2])}
    return model(nodes, {"x": values(1, 3, 8), "rate": np.array(0)}, weights=weights)


def test_a_branch_is_chosen() -> None:
    x = values(1, 3, 8)
    network = _branches_of_a_rate()
    (wide,) = run(network, {"x": x}, constants={"rate": 16000})
    np.testing.assert_array_equal(wide, x.reshape(1, 3, 4, 2).max(-1))
    (narrow,) = run(network, {"x": x}, constants={"rate": np.array([8000])})
    np.testing.assert_allclose(narrow, x.sum(-1, keepdims=True), rtol=1e-6)


def test_the_error_without_says_so() -> None:
    with pytest.raises(errors.UnsupportedOp, match=r"computed condition.*--constant rate=16000"):
        convoy.from_onnx(_branches_of_a_rate())


def test_a_branch_that_does_not_convert_names_the_way_out() -> None:
    network = _branches_of_a_rate()
    network.graph.node[1].attribute[0].g.node[0].op_type = "NonZero"
    del network.graph.node[1].attribute[0].g.node[0].input[1]
    with pytest.raises(errors.UnsupportedOp, match=r"NonZero.*--constant rate=16000.*one branch"):
        convoy.from_onnx(network)


def test_a_shape_is_given_as_a_constant() -> None:
    node = onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])
    network = model([node], {"x": values(2, 6), "shape": np.array([0, 0])})
    with pytest.raises(errors.UnsupportedOp, match="--constant"):
        convoy.from_onnx(network)
    (got,) = run(network, {"x": values(2, 6)}, constants={"shape": [4, -1]})
    assert got.shape == (4, 3)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"z": 1}, "'z'.*one of 'x', 'scale'"),
        ({"scale": "a"}, "numbers of int64"),
        ({"scale": 0.5}, "numbers of int64"),
        ({"scale": [1, 2, 3]}, r"shape \(3\) for input 'scale'.*\(1, 2\)"),
        ({"scale": [[1, 2, 3]]}, r"\(1, 2\)"),
    ],
)
def test_constants_that_are_none(given: dict[str, Any], match: str) -> None:
    node = onnx.helper.make_node("Add", ["x", "scale"], ["y"])
    network = model([node], {"x": np.zeros((1, 2), "int64"), "scale": np.zeros((1, 2), "int64")})
    with pytest.raises(errors.InvalidOption, match=match):
        convoy.from_onnx(network, constants=given)


def test_numbers_take_the_declared_shape_and_dtype() -> None:
    node = onnx.helper.make_node("Mul", ["x", "scale"], ["y"])
    feeds = {"x": values(1, 2), "scale": values(1, 2)}
    (got,) = run(model([node], feeds), {"x": feeds["x"]}, constants={"scale": [2, 3]})
    np.testing.assert_array_equal(got, feeds["x"] * np.array([2, 3], "float32"))


def test_options_of_the_commands(tmp_path: Path) -> None:
    found = constants(["rate=16000", "size=640,0.5", "on=true"])
    assert found["rate"] == 16000 and found["size"].tolist() == [640, 0.5] and found["on"]
    with pytest.raises(errors.InvalidOption, match="a name and numbers"):
        constants(["rate=high"])
    path = tmp_path / "net.onnx"
    onnx.save(_branches_of_a_rate(), path)
    options = ["-o", str(tmp_path / "net.so"), "--target", "llvm", "--constant", "rate=16000"]
    result = CliRunner().invoke(app, ["build", str(path), *options])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "output y: float32 of shape (1, 3, 4)" in result.output


def test_sessions_take_constants() -> None:
    session = convoy.InferenceSession(
        _branches_of_a_rate(), target="llvm", constants={"rate": 16000}
    )
    assert [value.name for value in session.get_inputs()] == ["x"]


def test_a_layer_over_data_of_another_rank_is_named() -> None:
    node = onnx.helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=2, name="rnn")
    weights = {"w": values(1, 6, 3), "r": values(1, 6, 2)}
    with pytest.raises(errors.InvalidModel, match=r"GRU \('rnn'\) of float32 \(4, 3\)"):
        convoy.from_onnx(model([node], {"x": values(4, 3)}, weights=weights))


def test_errors_of_any_class_keep_it_in_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Placed(errors.ConvoyError):
        def __init__(self, line: int) -> None:
            super().__init__(f"line {line}", "none", "Leave it out.")
            self.line = line

    def fails(call: Any) -> None:
        raise Placed(3)

    monkeypatch.setitem(CONVERTERS, ("", "MaxPool"), fails)
    with pytest.raises(Placed, match=r"MaxPool.*line 3; .*Then one branch is left") as raised:
        convoy.from_onnx(_branches_of_a_rate())
    assert raised.value.line == 3
