"""A text recognizer as an ONNX file, convolutions and a bidirectional LSTM, from file to result.

    python examples/onnx_text_recognition.py [--target cuda]

The width of its images is open in the file and is given when it is compiled.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

import convoy

HEIGHT, HIDDEN, LETTERS = 16, 24, 11


def write_model(path: Path) -> None:
    """Write the network with random weights; exporters write the same nodes."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {}

    def weight(name: str, *shape: int) -> str:
        scale = np.prod(shape[1:]) ** -0.5
        weights[name] = rng.normal(0, scale, shape).astype("float32")
        return name

    def ints(name: str, *values: int) -> str:
        weights[name] = np.array(values)
        return name

    node = helper.make_node
    pool: dict[str, Any] = {"kernel_shape": [2, 1], "strides": [2, 1]}
    nodes = [
        node("Conv", ["image", weight("w1", 16, 1, 3, 3)], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], **pool),
        node("Conv", ["p1", weight("w2", 32, 16, 3, 3)], ["c2"], pads=[1, 1, 1, 1]),
        node("Relu", ["c2"], ["r2"]),
        node("MaxPool", ["r2"], ["p2"], **pool),
        # (batch, channels, height, width) -> (width, batch, features), sizes read from the tensor
        node("Shape", ["p2"], ["size"]),
        node("Gather", ["size", ints("width_axis", 3)], ["width"]),
        node("Gather", ["size", ints("batch_axis", 0)], ["batch"]),
        node("Concat", ["width", "batch", ints("rest", -1)], ["wanted"], axis=0),
        node("Transpose", ["p2"], ["columns"], perm=[3, 0, 1, 2]),
        node("Reshape", ["columns", "wanted"], ["sequence"]),
        node(
            "LSTM",
            ["sequence", weight("lw", 2, 4 * HIDDEN, 32 * HEIGHT // 4),
             weight("lr", 2, 4 * HIDDEN, HIDDEN), weight("lb", 2, 8 * HIDDEN)],
            ["both"], hidden_size=HIDDEN, direction="bidirectional",
        ),
        node("Transpose", ["both"], ["together"], perm=[0, 2, 1, 3]),
        node("Reshape", ["together", ints("flat", 0, 0, -1)], ["features"]),
        node("MatMul", ["features", weight("wo", 2 * HIDDEN, LETTERS)], ["scores"]),
        node("LogSoftmax", ["scores"], ["letters"], axis=2),
    ]  # fmt: skip
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "text",
        [tensor("image", TensorProto.FLOAT, ["batch", 1, HEIGHT, "width"])],
        [tensor("letters", TensorProto.FLOAT, ["width", "batch", LETTERS])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="llvm", help="cuda or llvm")
    parser.add_argument("--width", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.onnx"
        write_model(path)
        try:
            convoy.from_onnx(path)
        except convoy.errors.DynamicShape as err:
            print(f"without sizes: {err}")
        module = convoy.from_onnx(path, shapes={"image": (1, 1, HEIGHT, options.width)})
        convoy.build(module, options.target).export_library(Path(folder) / "text.so")
        session = convoy.load(Path(folder) / "text.so").session()
        image = np.random.default_rng(1).uniform(0, 1, (1, 1, HEIGHT, options.width))
        session.run({"image": image.astype("float32")})
        letters = session.output("letters").numpy()
        expected = onnx.reference.ReferenceEvaluator(str(path)).run(
            None, {"image": image.astype("float32")}
        )[0]
    error = float(np.abs(letters - expected).max())
    print(f"best letters {letters[:, 0].argmax(1).tolist()}, error {error:.1e}")
    if error > (1e-4 if options.target == "llvm" else 2e-2):
        raise SystemExit("the result is not that of onnx's reference implementation")


if __name__ == "__main__":
    main()
