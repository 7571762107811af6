"""ONNX files: open batch sizes, and files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convoy import errors
from convoy.frontend import model_file as models

onnx = pytest.importorskip("onnx")


def save(path: Path, shape: list[Any], kind: str = "Conv") -> Path:
    """A model of one operator on an input of eight channels (or another number of them)."""
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    w = onnx.numpy_helper.from_array(np.ones((4, 8, 3, 3), "float32"), "w")
    node = helper.make_node(kind, ["data.1", "w"] if kind == "Conv" else ["data.1"], ["y"])
    data, y = (helper.make_tensor_value_info(*v) for v in (
        ("data.1", float32, shape), ("y", float32, ["a", "b", "c", "d"])
    ))  # fmt: skip
    graph = helper.make_graph([node], "model", [data], [y], [w] if kind == "Conv" else [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def shape_of_input(module: Any) -> list[int]:
    (data,) = module["main"].params
    return [int(size) for size in data.ty.shape.values]


def test_a_batch_size_that_is_open_is_given(tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx", ["N", 8, 9, 9])
    assert shape_of_input(models.read(path, batch=3)) == [3, 8, 9, 9]
    with pytest.raises(errors.DynamicShape, match=r"\(N, 8, 9, 9\).*--batch"):
        models.read(path)


def test_a_batch_size_that_is_fixed_stays(tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx", [2, 8, 9, 9])
    assert shape_of_input(models.read(path)) == shape_of_input(models.read(path, batch=2))
    with pytest.raises(errors.InvalidOption, match="has 2"):
        models.read(path, batch=3)


def test_open_heights_and_widths_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx", ["N", 8, "H", "W"])
    with pytest.raises(errors.DynamicShape, match=r"--shape data\.1=1,8,224,224"):
        models.read(path, batch=1)


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 40, b"no model"])
def test_files_that_are_no_models(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(errors.InvalidModel, match=r"net\.onnx"):
        models.read(path)


def test_what_the_importer_refuses(tmp_path: Path) -> None:
    with pytest.raises(errors.UnsupportedOp, match="Det"):
        models.read(save(tmp_path / "net.onnx", [2, 8, 9, 9], "Det"))
    with pytest.raises(errors.InvalidModel, match="channel"):
        models.read(save(tmp_path / "net.onnx", [2, 7, 9, 9]))


def test_parameters_have_no_place_beside_an_onnx_model(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidOption, match="--params"):
        models.read(save(tmp_path / "net.onnx", [2, 8, 9, 9]), params=tmp_path / "p.npz")
