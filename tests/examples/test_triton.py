"""The example for Triton Inference Server, with a stand-in for the server's Python module."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convoy
from convoy import relay
from convoy.relay.convert import to_relax

FOLDER = Path(__file__).parents[2] / "examples" / "triton_server" / "classifier"
RELAY = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 3, 32, 32), float32], %w: Tensor[(10, 3, 1, 1), float32]) {
  nn.softmax(mean(nn.conv2d(%data, %w, channels=10, kernel_size=[1, 1]), axis=[2, 3]))
}
"""


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> np.ndarray:
        return self.array


class Request:
    def __init__(self, tensors: list[Tensor], outputs: list[str]) -> None:
        self.tensors, self.outputs = tensors, outputs

    def requested_output_names(self) -> list[str]:
        return self.outputs


class Response:
    def __init__(self, tensors: list[Tensor], error: Any = None) -> None:
        self.tensors, self.error = tensors, error


class Failure(Exception):
    pass


@pytest.fixture(scope="module")
def server() -> Any:
    """The names that Triton's Python backend provides, as its documentation has them."""
    stub = types.ModuleType("triton_python_backend_utils")
    stub.Tensor, stub.InferenceResponse = Tensor, Response  # type: ignore[attr-defined]
    stub.TritonError = stub.TritonModelException = Failure  # type: ignore[attr-defined]
    stub.get_input_tensor_by_name = lambda request, name: next(  # type: ignore[attr-defined]
        (tensor for tensor in request.tensors if tensor.name == name), None
    )
    sys.modules[stub.__name__] = stub
    spec = importlib.util.spec_from_file_location("triton_model", FOLDER / "1" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[stub.__name__]


def config() -> dict[str, Any]:
    """What of config.pbtxt reaches the model as JSON."""
    text = (FOLDER / "config.pbtxt").read_text()
    (module,) = re.findall(r'string_value: "([^"]*)"', text)
    return {
        "input": [{"name": name} for name in re.findall(r'input \[ \{ name: "(\w+)"', text)],
        "output": [{"name": name} for name in re.findall(r'output \[ \{ name: "(\w+)"', text)],
        "parameters": {"module": {"string_value": module}},
    }


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    (folder / "1").mkdir()
    weights = np.random.default_rng(0).normal(size=(10, 3, 1, 1)).astype("float32")
    built = convoy.build(to_relax(relay.parse(RELAY), {"w": weights}), "llvm")
    built.export_library(folder / "1" / config()["parameters"]["module"]["string_value"])
    return folder


def model(server: Any, repository: Path, **changes: Any) -> Any:
    made = server.TritonPythonModel()
    made.initialize(
        {
            "model_config": json.dumps({**config(), **changes}),
            "model_repository": str(repository),
            "model_version": "1",
            "model_instance_device_id": "0",
        }
    )
    return made


def test_requests_are_answered(server: Any, repository: Path) -> None:
    made = model(server, repository)
    x = np.random.default_rng(1).normal(size=(1, 3, 32, 32)).astype("float32")
    good = Request([Tensor("data", x)], ["output_0"])
    nothing = Request([], ["output_0"])
    small = Request([Tensor("data", x[..., :8])], ["output_0"])
    answers = made.execute([good, nothing, small, good])
    (found,) = answers[0].tensors
    assert found.name == "output_0" and found.array.sum() == pytest.approx(1.0, abs=1e-5)
    expected = convoy.load(repository / "1" / "module.so").session()(x)
    np.testing.assert_array_equal(found.array, expected[0])
    assert "'data'" in str(answers[1].error) and "(1, 3, 32, 8)" in str(answers[2].error)
    np.testing.assert_array_equal(answers[3].tensors[0].array, expected[0])


def test_a_configuration_of_another_network_is_refused(server: Any, repository: Path) -> None:
    with pytest.raises(Failure, match="lacks the inputs"):
        model(server, repository, input=[{"name": "picture"}])
    with pytest.raises(Failure, match="scores"):
        model(server, repository, output=[{"name": "scores"}])
