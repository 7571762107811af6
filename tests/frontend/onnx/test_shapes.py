"""Open axes of a model's inputs."""

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
from convoy.cli.options import shapes  # noqa: E402
from convoy.onnx.shapes import input_shapes  # noqa: E402

from .support import model, values  # noqa: E402


def declared(**inputs: list[Any]) -> list[Any]:
    return [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()]


def test_one_error_says_what_to_type_for_all() -> None:
    inputs = declared(image=["N", 3, "H", "W"], scale=[1], ids=["N", None])
    with pytest.raises(errors.DynamicShape) as raised:
        input_shapes(inputs, {})
    text = str(raised.value)
    assert "'image' of shape (N, 3, H, W), 'ids' of shape (N, ?)" in text
    assert "--shape image=1,3,224,224 --shape ids=1,128" in text
    given = shapes(["image=1,3,224,224", "ids=1,128"])
    assert input_shapes(inputs, given) == {**given, "scale": (1,)}


def test_a_name_has_one_size_in_what_to_type() -> None:
    inputs = declared(x=["batch", "T"], state=[2, "batch", 8], h=[2, "batch_size", "N"], z=["N", 3])
    with pytest.raises(errors.DynamicShape) as raised:
        input_shapes(inputs, {})
    options = "x=1,128 --shape state=2,1,8 --shape h=2,1,1 --shape z=1,3"
    assert options in str(raised.value)
    assert input_shapes(inputs, shapes(options.split(" --shape ")))["state"] == (2, 1, 8)


@pytest.mark.parametrize("sign", ["?", "-1", "*", "None"])
def test_signs_for_any_size_are_no_names(sign: str) -> None:
    inputs = declared(x=[sign, 3, sign, sign])
    assert input_shapes(inputs, {"x": (1, 3, 48, 192)}) == {"x": (1, 3, 48, 192)}
    with pytest.raises(errors.DynamicShape, match=r"of shape \(\?, 3, \?, \?\).*x=1,3,224,224"):
        input_shapes(inputs, {})


def test_names_are_quoted_for_the_shell() -> None:
    with pytest.raises(errors.DynamicShape, match="--shape 'my image=1,3,224,224', in Python"):
        input_shapes(declared(**{"my image": ["N", 3, "H", "W"]}), {})


def test_a_size_with_a_name_is_given_once() -> None:
    inputs = declared(mask=["N", "T"], ids=["N", "T"])
    expected = {"ids": (2, 7), "mask": (2, 7)}
    assert input_shapes(inputs, {"ids": (2, 7)}) == expected
    with pytest.raises(errors.InvalidOption, match=r"with T = 7"):
        input_shapes(inputs, {"ids": (2, 7), "mask": (2, 8)})
    with pytest.raises(errors.DynamicShape, match=r"'mask' of shape \(4, T\)"):
        input_shapes(inputs, {}, batch=4)
    with pytest.raises(errors.InvalidOption, match=r"--batch 4 and shape \(2, 7\)"):
        input_shapes(inputs, {"ids": (2, 7)}, batch=4)
    assert input_shapes(inputs, {"ids": (2, 7)}, batch=2) == expected


@pytest.mark.parametrize("batch", [0, -1, 2**31, 1.5, True])
def test_batches_that_are_none(batch: Any) -> None:
    with pytest.raises(errors.InvalidOption, match=rf"batch {batch}; expected a number from 1"):
        input_shapes(declared(x=["N", 3]), {}, batch)


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ((1, 4, 8), r"expected \(N, 3, \?\)"),
        ((1, 3), "3: "),
        ((1, 3, -1), "sizes from 0"),
        ((1, 3, 2**31), "sizes from 0 to 2147483647"),
    ],
)
def test_shapes_that_contradict_the_model(shape: tuple[int, ...], match: str) -> None:
    with pytest.raises(errors.InvalidOption, match=match):
        input_shapes(declared(x=["N", 3, None]), {"x": shape})


@pytest.mark.parametrize(
    ("op", "attributes", "weight"),
    [
        ("Reshape", {}, np.array([1, 3, 64])),
        ("Split", {"axis": 2}, np.array([8, 8])),
        ("Expand", {}, np.array([1, 3, 16, 16])),
        ("Add", {}, values(1, 3, 16, 16)),
        ("MatMul", {}, values(16, 2)),
        ("Conv", {}, values(2, 3, 26, 26)),
    ],
)
def test_sizes_that_a_node_does_not_take(
    op: str, attributes: dict[str, Any], weight: np.ndarray
) -> None:
    node = onnx.helper.make_node(
        op, ["x", "w"], ["y", "z"] if op == "Split" else ["y"], **attributes
    )
    network = model([node], {"x": values(1, 3, 16, 16)}, weights={"w": weight})
    for axis, name in ((0, "N"), (2, "H"), (3, "W")):
        network.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    given = r"'x' \(N, 3, H, W\) as \(1, 3, 24, 24\).*--shape x=N,3,H,W with numbers"
    with pytest.raises(errors.InvalidModel, match=f"{op}.*{given}"):
        convoy.from_onnx(network, shapes={"x": (1, 3, 24, 24)})
    del network.graph.input[0].type.tensor_type.shape.dim[:]
    for size in (1, 3, 24, 24):
        network.graph.input[0].type.tensor_type.shape.dim.add().dim_value = size
    with pytest.raises(errors.InvalidModel) as raised:
        convoy.from_onnx(network)
    assert "--shape" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"shapes": [1, 3]}, r"shapes=\[1, 3\]; expected a dictionary by name"),
        ({"shapes": {"x": 3}}, "shape 3 for input 'x'"),
        ({"constants": [1]}, "constants=.*a dictionary by name"),
        ({"outputs": "y"}, r"outputs='y'; expected a list of names, such as \['y'\]"),
    ],
)
def test_options_of_another_kind(options: dict[str, Any], match: str) -> None:
    network = model([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": values(2)})
    with pytest.raises(errors.InvalidOption, match=match):
        convoy.from_onnx(network, **options)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(errors.InvalidOption, match=r"'y'.*one of 'x'"):
        input_shapes(declared(x=[1]), {"y": (1,)})


@pytest.mark.parametrize("text", ["1,3", "x=1,a", "=1"])
def test_options_that_are_no_shapes(text: str) -> None:
    with pytest.raises(errors.InvalidOption, match="such as"):
        shapes([text])


def test_the_commands_take_shapes_and_ends(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Conv", ["in:0", "w"], ["c"]),
        onnx.helper.make_node("Relu", ["c"], ["y"]),
    ]
    network = model(nodes, {"in:0": values(1, 8, 6, 6)}, weights={"w": values(8, 8, 3, 3)})
    for axis in (0, 2, 3):
        network.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    path = tmp_path / "net.onnx"
    onnx.save(network, path)
    for command in (["place"], ["tune", "--write-list", str(tmp_path / "list.jsonl")]):
        options = [*command[1:], "--shape", "in:0=2,8,9,9"]
        result = CliRunner().invoke(app, [command[0], str(path), *options])
        assert result.exit_code == 0, (result.output, result.exception)
    built = tmp_path / "net.so"
    options = ["-o", str(built), "--target", "llvm", "--shape", "in:0=1,8,5,5", "--end", "c"]
    result = CliRunner().invoke(app, ["build", str(path), *options])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "output c: float32 of shape (1, 8, 3, 3)" in result.output
