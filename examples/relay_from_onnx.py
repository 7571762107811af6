"""Import an ONNX model as Relay, compile it and compare with ONNX's reference evaluator.

    python examples/relay_from_onnx.py                # on the CPU
    python examples/relay_from_onnx.py --target cuda

The imports are those of TVM 0.18 with `convoy.relay.tvm018` in place of `tvm`; the model is made
here, with weights of a seed.
"""

import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from convoy import graph_executor, relay
from convoy.relay import tvm018 as tvm

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--target", default="llvm", help="llvm or cuda")
arguments = parser.parse_args()

rng = np.random.default_rng(0)
weights = {
    "w1": rng.normal(0, 0.3, (16, 3, 3, 3)),
    "b1": rng.normal(0, 0.1, 16),
    "w2": rng.normal(0, 0.1, (16, 16, 3, 3)),
    "fc": rng.normal(0, 0.2, (16, 10)),
}
nodes = [
    helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c1"], ["a1"]),
    helper.make_node("Conv", ["a1", "w2"], ["c2"], auto_pad="SAME_UPPER"),
    helper.make_node("Add", ["c2", "a1"], ["sum"]),
    helper.make_node("GlobalAveragePool", ["sum"], ["pooled"]),
    helper.make_node("Flatten", ["pooled"], ["flat"]),
    helper.make_node("MatMul", ["flat", "fc"], ["scores"]),
    helper.make_node("Softmax", ["scores"], ["classes"]),
]
graph = helper.make_graph(
    nodes,
    "small",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
    [helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["batch", 10])],
    [numpy_helper.from_array(a.astype("float32"), n) for n, a in weights.items()],
)
onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
onnx.checker.check_model(onnx_model)

x = rng.standard_normal((4, 3, 32, 32)).astype("float32")
mod, params = relay.frontend.from_onnx(onnx_model, {"image": x.shape})
print(mod["main"])

with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target=arguments.target, params=params)
device = tvm.device(arguments.target, 0)
module = graph_executor.GraphModule(lib["default"](device))
module.set_input("image", tvm.nd.array(x))
module.run()
got = module.get_output(0).numpy()

(want,) = ReferenceEvaluator(onnx_model).run(None, {"image": x})
error = float(np.abs(got - want).max())
print(f"largest difference to the reference evaluator: {error:.1e}")
if error > 1e-3:
    raise SystemExit("the outputs differ")
