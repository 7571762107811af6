"""The script of docs/guides/relay.md, which was written for TVM 0.18: only its imports changed."""

# ruff: noqa: I001
import numpy as np
from convoy.relay import tvm018 as tvm
from convoy import relay
from convoy import graph_executor
from convoy.relay import testing

mod, params = testing.mlp.get_workload(batch_size=1)
x = relay.var("x", shape=(1, 10))
shifted = relay.Function([x], relay.add(x, relay.const(1.0)))
mod["shifted"] = tvm.IRModule.from_expr(shifted)["main"]
mod = tvm.transform.Sequential([relay.transform.InferType()])(mod)
assert tvm.ir.structural_equal(tvm.ir.load_json(tvm.ir.save_json(mod)), mod)

targets = [tvm.target.Target("llvm"), tvm.target.Target({"kind": "cutlass", "sm": 80})]
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(relay.parse(mod.astext()), target=targets, params=params)
lib.export_library("mlp.so")

device = tvm.cpu()
module = graph_executor.GraphModule(tvm.runtime.load_module("mlp.so")["default"](device))
module.set_input("data", tvm.nd.array(np.ones((1, 1, 28, 28), "float32"), device))
module.run()
output = module.get_output(0).numpy()
print(output.argmax(), module.benchmark(device, repeat=2).mean)
