"""Importers that rest on other tools, and frameworks that are refused."""

from __future__ import annotations

import importlib.util

import pytest

from convoy import relay
from convoy.errors import InvalidModel, LibraryMissing, UnsupportedOp


def test_tflite_needs_its_converter() -> None:
    with pytest.raises(InvalidModel, match="a TFLite model"):
        relay.frontend.from_tflite(b"no model")
    if importlib.util.find_spec("tf2onnx") is None:
        with pytest.raises(LibraryMissing, match="pip install tf2onnx"):
            relay.frontend.from_tflite(b"\x1c\x00\x00\x00TFL3")


def test_tensorflow_needs_a_graph() -> None:
    with pytest.raises(InvalidModel, match="a frozen GraphDef"):
        relay.frontend.from_tensorflow({})


@pytest.mark.parametrize("name", ["mxnet", "paddle", "oneflow", "coreml", "darknet", "caffe"])
def test_other_frameworks_say_what_to_do(name: str) -> None:
    with pytest.raises(UnsupportedOp, match="ONNX"):
        getattr(relay.frontend, f"from_{name}")(object(), {"data": (1, 3)})
