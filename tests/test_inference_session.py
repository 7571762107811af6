"""An onnxruntime-style session over modules, files and built networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import convoy
from convoy import errors, relay
from convoy.relay.convert import to_relax

RELAY = """#[version = "0.0.5"]
def @main(%data: Tensor[(2, 3, 8, 8), float32], %scale: Tensor[(1), float32],
          %w: Tensor[(4, 3, 1, 1), float32]) {
  %0 = nn.conv2d(multiply(%data, %scale), %w, channels=4, kernel_size=[1, 1]);
  (nn.relu(%0), mean(%0, axis=[2, 3]))
}
"""
WEIGHTS = np.random.default_rng(0).normal(size=(4, 3, 1, 1)).astype("float32")
X = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype("float32")
FEED = {"data": X, "scale": np.full(1, 2.0, "float32")}
Y = np.einsum("nchw,kc->nkhw", 2 * X, WEIGHTS[..., 0, 0])


@pytest.fixture(scope="module")
def session() -> convoy.InferenceSession:
    return convoy.InferenceSession(to_relax(relay.parse(RELAY), {"w": WEIGHTS}), target="llvm")


def test_run_returns_the_outputs_that_were_asked_for(session: convoy.InferenceSession) -> None:
    every = session.run(None, FEED)
    np.testing.assert_allclose(every[0], np.maximum(Y, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(every[1], Y.mean((2, 3)), rtol=1e-5, atol=1e-6)
    names = [output.name for output in session.get_outputs()]
    second, first = session.run(names[::-1], FEED)
    np.testing.assert_array_equal(first, every[0])
    np.testing.assert_array_equal(second, every[1])


def test_inputs_and_outputs_are_described_as_onnxruntime_does(session) -> None:
    data = session.get_inputs()[0]
    assert (data.name, data.shape, data.type) == ("data", [2, 3, 8, 8], "tensor(float)")
    assert [output.shape for output in session.get_outputs()] == [[2, 4, 8, 8], [2, 4]]


@pytest.mark.parametrize(
    ("names", "feed", "match"),
    [
        (None, {"data": X}, "no value for input 'scale'"),
        (None, {**FEED, "picture": X}, "'picture'"),
        (["absent"], FEED, "'absent'"),
        (None, [X], "a feed of type list; expected arrays by name"),
        (None, {**FEED, "data": X[:1]}, r"\(1, 3, 8, 8\)"),
        (None, {**FEED, "data": X.astype("complex64")}, "complex64"),
    ],
)
def test_mistakes(session: convoy.InferenceSession, names, feed, match) -> None:
    with pytest.raises(errors.InvalidOption, match=match):
        session.run(names, feed)


def test_providers_choose_the_target(session, tmp_path: Path) -> None:
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    here = convoy.InferenceSession(session.compiled, None, both)
    assert here.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(here.run(None, FEED, None)[0], session.run(None, FEED)[0])
    (tmp_path / "net.relay").write_text(RELAY)
    built = convoy.InferenceSession(tmp_path / "net.relay", providers=both[1:])
    assert built.compiled.meta.target == "llvm"
    with pytest.raises(errors.InvalidOption, match="providers without CPUExecutionProvider"):
        convoy.InferenceSession(session.compiled, providers=both[:1])
    with pytest.raises(errors.InvalidOption, match="providers= and target="):
        convoy.InferenceSession(session.compiled, providers=both, target="llvm")
    with pytest.raises(errors.InvalidOption, match='target="llvm"'):
        convoy.InferenceSession(session.compiled, "llvm")


@pytest.mark.parametrize("name", ["io_binding", "run_with_iobinding", "run_async", "get_modelmeta"])
def test_other_methods_of_onnxruntime_name_what_to_use(session, name: str) -> None:
    with pytest.raises(errors.InvalidOption, match=f"InferenceSession.{name}; expected get_inputs"):
        getattr(session, name)
    assert not hasattr(session, "absent")


def test_compiled_modules_in_memory_and_in_files(session, tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    session.compiled.export_library(path)
    expected = session.run(None, FEED)
    for given in (path, str(path), session.compiled):
        for mine, theirs in zip(
            convoy.InferenceSession(given).run([], FEED), expected, strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(errors.InvalidOption, match="target= for a module that is compiled"):
        convoy.InferenceSession(path, target="llvm")
    with pytest.raises(errors.InvalidOption, match="precision= for"):
        convoy.InferenceSession(path, precision="float16")


def test_model_files_are_built(tmp_path: Path) -> None:
    (tmp_path / "net.relay").write_text(RELAY)
    built = convoy.InferenceSession(tmp_path / "net.relay", target="llvm", precision="float32")
    assert [output.name for output in built.get_outputs()] == ["output_0", "output_1"]


def test_open_axes_of_a_model_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    shape, helper = ["N", 3], onnx.helper
    ends = [helper.make_tensor_value_info(name, 1, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", ends[:1], ends[1:])
    path = tmp_path / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(model, path)
    with pytest.raises(errors.DynamicShape, match="shapes="):
        convoy.InferenceSession(path, target="llvm")
    session = convoy.InferenceSession(path, target="llvm", shapes={"x": (2, 3)})
    assert session.get_inputs()[0].shape == [2, 3]
    for given in (path, model, path.read_bytes()):
        session = convoy.InferenceSession(given, target="llvm", batch=2)
        assert session.get_inputs()[0].shape == [2, 3]
    with pytest.raises(errors.InvalidModel, match="got bytes, which cannot be read"):
        convoy.InferenceSession(b"none", target="llvm")
    with pytest.raises(errors.InvalidModel, match="got a int; expected a path"):
        convoy.from_onnx(5)
    with pytest.raises(errors.InvalidOption, match="shapes="):
        convoy.InferenceSession(session.compiled, shapes={"x": (2, 3)})
