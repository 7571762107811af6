"""Make the mistakes that users make, and print what Convoy says: got, expected, what to do.

python examples/errors.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import convoy
from convoy import relay
from convoy.errors import ConvoyError

RELAY = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 4), float32]) { nn.relu(%x) }
"""


def model(path: Path, operator: str, axes: list[Any], result: int = TensorProto.FLOAT) -> Path:
    """An ONNX file of one operator."""
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, axes)],
        [helper.make_tensor_value_info("y", result, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def mistakes(folder: Path) -> dict[str, Callable[[], object]]:
    built = convoy.build(relay.to_relax(relay.parse(RELAY)), "llvm")
    session = built.session()
    built.export_library(folder / "damaged.so")
    (folder / "damaged.so").write_bytes((folder / "damaged.so").read_bytes()[:5000])
    open_axes = model(folder / "open.onnx", "Relu", ["batch", 3, "height", 8])
    no_size = model(folder / "nonzero.onnx", "NonZero", [2, 3], TensorProto.INT64)
    return {
        "a file that there is not": lambda: convoy.load(folder / "absent.so"),
        "a damaged module": lambda: convoy.load(folder / "damaged.so"),
        "open axes without sizes": lambda: convoy.from_onnx(open_axes),
        "results whose size depends on data": lambda: convoy.from_onnx(no_size),
        "an input that would be narrowed": lambda: session(np.zeros((1, 4), "float64")),
        "an input of another shape": lambda: session(np.zeros((2, 4), "float32")),
        "Relay that does not parse": lambda: relay.parse(RELAY.replace("%x)", "%y)")),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for what, mistake in mistakes(Path(folder)).items():
            try:
                mistake()
            except ConvoyError as err:
                text = str(err).replace(folder, "FOLDER")
                print(f"{what}\n  {type(err).__name__}: {text}")
            else:
                raise AssertionError(f"{what}: no error")


if __name__ == "__main__":
    main()
