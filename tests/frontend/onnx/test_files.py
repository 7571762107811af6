"""Models as files: names, external data, weights among the inputs, what is damaged."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convoy
from convoy import errors

onnx = pytest.importorskip("onnx")

from .support import model, run, values  # noqa: E402

node = onnx.helper.make_node


def network(dtype: str = "float32") -> Any:
    """Two inputs and three outputs with names that are no identifiers."""
    nodes = [
        node("Conv", ["data/1", "w.0"], ["conv:0"]),
        node("Relu", ["conv:0"], ["out.relu"]),
        node("Add", ["out.relu", "shift"], ["file"]),
        node("Shape", ["file"], ["size"]),
    ]
    feeds = {"data/1": values(1, 3, 5, 5, dtype=dtype), "shift": values(1, dtype=dtype)}
    weights = {"w.0": values(2, 3, 3, 3, seed=1, dtype=dtype)}
    return model(nodes, feeds, ("file", "conv:0", "size"), weights), feeds


def test_names_stay_in_an_exported_module(tmp_path: Path) -> None:
    proto, feeds = network()
    path = tmp_path / "net.so"
    convoy.build(convoy.from_onnx(proto), "llvm").export_library(path)
    session = convoy.load(path).session()
    assert [name for name, _, _ in session.input_info] == ["data/1", "shift"]
    assert [name for name, _, _ in session.output_info] == ["file", "conv:0", "size"]
    session.run(feeds)
    conv = session.output("conv:0").numpy()
    np.testing.assert_allclose(
        session.output("file").numpy(), np.maximum(conv, 0) + feeds["shift"], 1e-6
    )
    assert session.output("size").numpy().tolist() == [1, 2, 3, 3]
    with pytest.raises(errors.InvalidOption, match=r"'none'.*one of file, conv:0, size"):
        session.output("none")


@pytest.mark.parametrize("name", ["main", "/", "é 1", "R.x[0]"])
def test_tensors_have_any_names(name: str) -> None:
    node, x = onnx.helper.make_node, values(2, 3)
    nodes = [node("Relu", ["x"], [name]), node("Neg", [name], ["y"])]
    np.testing.assert_array_equal(run(model(nodes, {"x": x}), {"x": x})[0], -np.maximum(x, 0))


def test_layers_have_the_names_of_their_nodes() -> None:
    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"], "/stem/conv/Conv"),
        node("GlobalAveragePool", ["c"], ["p"], "pool"),
        node("Flatten", ["p"], ["f"], "flat"),
        node("MatMul", ["f", "v"], ["y"]),
    ]
    weights = {"w": values(4, 3, 3, 3), "v": values(4, 5)}
    network = model(nodes, {"x": values(1, 3, 8, 8)}, weights=weights)
    built = convoy.build(convoy.from_onnx(network), "llvm")
    assert built.meta.layers == ("/stem/conv/Conv", "y")


def test_weights_that_are_listed_as_inputs_are_weights() -> None:
    proto, feeds = network()
    weight = proto.graph.initializer[0]
    proto.graph.input.insert(
        0, onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
    )
    proto.ir_version = 3
    main = convoy.from_onnx(proto)["main"]
    assert [var.name for var in main.params] == list(feeds)


def test_half_precision_models_keep_their_dtype() -> None:
    from onnx.reference import ReferenceEvaluator

    proto, feeds = network("float16")
    file, conv, _ = run(proto, feeds)
    assert file.dtype == conv.dtype == np.float16
    expected = ReferenceEvaluator(proto).run(None, feeds)
    np.testing.assert_allclose(conv, expected[1], 1e-2, 1e-2)


def test_external_data(tmp_path: Path) -> None:
    proto, feeds = network()
    expected = run(proto, feeds)[0]
    path = tmp_path / "net.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.testing.assert_array_equal(run(path, feeds)[0], expected)
    with pytest.raises(errors.InvalidModel, match="give the path"):
        convoy.from_onnx(onnx.load(path, load_external_data=False))
    (tmp_path / "weights.bin").write_bytes(b"short")
    with pytest.raises(errors.InvalidModel, match=r"w\.0.*too short"):
        convoy.from_onnx(path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(errors.InvalidModel, match=r"w\.0"):
        convoy.from_onnx(path)


def test_external_data_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    proto, _ = network()
    folder = tmp_path / "models"
    folder.mkdir()
    path = folder / "net.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    (folder / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(errors.InvalidModel, match="not below the model's folder"):
        convoy.from_onnx(path)


def test_external_data_behind_links(tmp_path: Path) -> None:
    """The cache of Hugging Face's hub has links to files with other names in another folder."""
    proto, feeds = network()
    expected = run(proto, feeds)[0]
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    path = blobs / "one"
    onnx.save(proto, path, save_as_external_data=True, location="net.onnx_data", size_threshold=0)
    (snapshot / "other.onnx").symlink_to(path)  # its data is beside the file itself
    np.testing.assert_array_equal(run(snapshot / "other.onnx", feeds)[0], expected)
    (blobs / "net.onnx_data").rename(blobs / "two")
    (snapshot / "net.onnx").symlink_to(path)
    (snapshot / "net.onnx_data").symlink_to(blobs / "two")
    np.testing.assert_array_equal(run(snapshot / "net.onnx", feeds)[0], expected)


def test_a_model_may_end_before_its_outputs() -> None:
    nodes = [node("Mul", ["x", "x"], ["square"]), node("NonZero", ["square"], ["y"])]
    feeds = {"x": values(2, 3)}
    with pytest.raises(errors.UnsupportedOp, match=r"NonZero.*outputs=\['square'\].*--end square"):
        run(model(nodes, feeds), feeds)
    (square,) = run(model(nodes, feeds), feeds, outputs=["square"])
    np.testing.assert_allclose(square, feeds["x"] ** 2, 1e-6)
    with pytest.raises(errors.InvalidOption, match="output 'z'"):
        convoy.from_onnx(model(nodes, feeds), outputs=["z"])


def test_nodes_that_contradict_each_other() -> None:
    feeds = {"x": values(2, 3)}
    call = node("MatMul", ["x", "x"], ["y"], name="head")
    with pytest.raises(
        errors.InvalidModel, match=r"MatMul \('head'\) of float32 \(2, 3\), float32 \(2, 3\)"
    ):
        convoy.from_onnx(model([call], feeds))
    with pytest.raises(errors.InvalidModel, match=r"'missing'.*nothing computes"):
        convoy.from_onnx(model([node("Relu", ["missing"], ["y"])], feeds))


def test_nodes_may_be_in_any_order() -> None:
    """onnxruntime sorts them too."""
    feeds = {"x": values(2, 3)}
    nodes = [node("Neg", ["b"], ["y"]), node("Abs", ["a"], ["b"]), node("Exp", ["x"], ["a"])]
    np.testing.assert_allclose(run(model(nodes, feeds), feeds)[0], -np.exp(feeds["x"]), 1e-5)
    nodes[2].input[0] = "y"
    with pytest.raises(errors.InvalidModel, match="need each other"):
        convoy.from_onnx(model(nodes, feeds))


def test_a_function_that_calls_itself() -> None:
    call = node("Again", ["x"], ["y"], domain="mine")
    proto = model([call], {"x": values(2)})
    opset = onnx.helper.make_opsetid("mine", 1)
    proto.functions.append(
        onnx.helper.make_function("mine", "Again", ["x"], ["y"], [call], [opset])
    )
    with pytest.raises(errors.InvalidModel, match="Again, which calls itself"):
        convoy.from_onnx(proto)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(errors.InvalidModel, match="git lfs pull"):
        convoy.from_onnx(path)
    path.write_bytes(b"nothing")
    with pytest.raises(errors.InvalidModel, match="cannot be read"):
        convoy.from_onnx(path)


def test_an_error_comes_without_warnings(capfd: pytest.CaptureFixture[str]) -> None:
    gc.collect()  # what other tests left
    capfd.readouterr()
    with pytest.raises(errors.UnsupportedOp):
        convoy.from_onnx(model([node("NonZero", ["x"], ["y"])], {"x": values(2)}))
    gc.collect()
    assert "Warning" not in capfd.readouterr().err


def test_inputs_of_text() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": values(2)})
    proto.graph.input.append(
        onnx.helper.make_tensor_value_info("words", onnx.TensorProto.STRING, [1])
    )
    with pytest.raises(errors.UnsupportedDtype, match="'words' of text"):
        convoy.from_onnx(proto)


def test_functions_of_the_model() -> None:
    """A local function with an attribute of its own, called twice."""
    proto = model(
        [node("Scaled", ["x"], ["a"], domain="mine", by=2.0),
         node("Scaled", ["a"], ["y"], domain="mine", by=3.0)],
        {"x": values(2, 3)},
    )  # fmt: skip
    constant = node("Constant", [], ["factor"])
    constant.attribute.append(
        onnx.AttributeProto(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT)
    )
    opset = onnx.helper.make_opsetid("", 18)
    function = onnx.helper.make_function(
        "mine", "Scaled", ["v"], ["w"], [constant, node("Mul", ["v", "factor"], ["w"])], [opset],
        ["by"],
    )  # fmt: skip
    proto.functions.append(function)
    proto.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    feeds = {"x": values(2, 3)}
    np.testing.assert_allclose(run(proto, feeds)[0], feeds["x"] * 6, 1e-6)


def test_functions_that_differ_in_their_overload() -> None:
    calls = [node("Step", ["x"], ["a"], domain="mine"), node("Step", ["a"], ["y"], domain="mine")]
    feeds = {"x": values(2, 3)}
    proto = model(calls, feeds)
    proto.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    opset = onnx.helper.make_opsetid("", 18)
    for call, op in zip(proto.graph.node, ("Neg", "Exp"), strict=True):
        call.overload = op
        body = [node(op, ["v"], ["w"])]
        function = onnx.helper.make_function("mine", "Step", ["v"], ["w"], body, [opset])
        function.overload = op
        proto.functions.append(function)
    np.testing.assert_allclose(run(proto, feeds)[0], np.exp(-feeds["x"]), 1e-5)
    proto.functions[1].output[0] = "none"
    with pytest.raises(errors.InvalidModel, match="Step, whose result 'none' nothing computes"):
        convoy.from_onnx(proto)
