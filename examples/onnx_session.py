"""Run an ONNX model as with onnxruntime, see the plan of its kernels, and benchmark it.

    python examples/onnx_session.py                  # on the GPU where there is one
    python examples/onnx_session.py --target llvm --seconds 0.1

The plan is for an H200, from recorded measurements, on any machine.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convoy
from convoy.bench.run import bench
from convoy.pipeline import predict_schedule
from convoy.placement import explain
from convoy.report import html, tables
from convoy.runtime import present_device


def write_model(path: Path) -> None:
    """Write a classifier with an open batch size; exporters write the same nodes."""
    rng = np.random.default_rng(0)
    weights = {
        "stem.weight": rng.normal(0, 0.2, (16, 3, 3, 3)),
        "stem.bias": rng.normal(0, 0.1, 16),
        "block.weight": rng.normal(0, 0.1, (16, 16, 3, 3)),
        "fc.weight": rng.normal(0, 0.3, (16, 10)),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "stem.weight", "stem.bias"], ["stem"], strides=[2, 2], pads=[1] * 4),
        node("Relu", ["stem"], ["relu"]),
        node("Conv", ["relu", "block.weight"], ["block"], pads=[1] * 4),
        node("Add", ["block", "relu"], ["sum"]),
        node("GlobalAveragePool", ["sum"], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("MatMul", ["flat", "fc.weight"], ["logits"]),
        node("Softmax", ["logits"], ["classes"]),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(v.astype("float32"), name) for name, v in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda" if present_device() else "llvm")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing for a batch size")
    parser.add_argument("--report", type=Path, default=Path("report.html"))
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "classifier.onnx"
        write_model(path)

        session = convoy.InferenceSession(path, target=args.target, batch=2)
        given = {"image": np.random.default_rng(1).normal(size=(2, 3, 32, 32)).astype("float32")}
        (classes,) = session.run(["classes"], given)
        (expected,) = ReferenceEvaluator(str(path)).run(None, given)
        print(f"{session.get_outputs()[0].name}: error {np.abs(classes - expected).max():.1e}")

        placement = convoy.place(convoy.from_onnx(path, batch=2), explain=True)
        schedule = predict_schedule(placement)
        tables.show(explain.COLUMNS, explain.table(placement.plan, schedule).rows)
        print(explain.summary(placement.plan, schedule))
        html.write(args.report, html.of_placement("classifier", placement, schedule))

        result = bench(path, [1, 2], target=args.target, seconds=args.seconds)
        for row in result.rows:
            top = row.layers[0]
            print(f"batch {row.batch}: p50 {row.p50_ms:.3f} ms, {row.per_s:.0f} images/s, "
                  f"{100 * top.share:.0f}% of the time in {top.name}")  # fmt: skip


if __name__ == "__main__":
    main()
