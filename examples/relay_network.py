"""Build a network with Relay's operators, compile it and time it.

    python examples/relay_network.py                # on the CPU
    python examples/relay_network.py --target cuda

As a script for TVM 0.18 does it: variables and calls, random parameters, `relay.build`, and
`time_evaluator` for the time of a run.
"""

import argparse

import numpy as np

from convoy import graph_executor, relay
from convoy.relay import tvm018 as tvm

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--target", default="llvm", help="llvm or cuda")
arguments = parser.parse_args()


def block(data: relay.Expr, channels: int, name: str) -> relay.Expr:
    """Convolve, normalize and rectify."""
    weight = relay.var(f"{name}_weight", shape=(channels, channels, 3, 3))
    names = ("gamma", "beta", "mean", "var")
    scales = [relay.var(f"{name}_{n}", shape=(channels,)) for n in names]
    conv = relay.nn.conv2d(data, weight, padding=(1, 1), channels=channels, kernel_size=(3, 3))
    return relay.nn.relu(relay.nn.batch_norm(conv, *scales)[0])


data = relay.var("data", shape=(1, 16, 24, 24))
out = block(data, 16, "first")
out = relay.add(block(out, 16, "second"), data)
out = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(out))
out = relay.nn.softmax(relay.nn.dense(out, relay.var("fc", shape=(10, 16))))
mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(out), out))
mod = relay.transform.InferType()(mod)
print(mod["main"])

rng = np.random.default_rng(0)
params = {}
for var in mod["main"].params[1:]:
    shape = [int(d) for d in var.checked_type.shape]
    params[var.name_hint] = tvm.nd.array(rng.uniform(0.1, 0.3, shape).astype("float32"))

lib = relay.build(mod, target=arguments.target, params=params)
device = tvm.device(arguments.target, 0)
module = graph_executor.GraphModule(lib["default"](device))
module.set_input("data", tvm.nd.array(rng.standard_normal((1, 16, 24, 24)).astype("float32")))
module.run()
total = float(module.get_output(0).numpy().sum())
timing = module.module.time_evaluator("run", device, number=2, repeat=3)()
print(f"classes add up to {total:.4f}; a run takes {timing.mean * 1e3:.2f} ms")
if abs(total - 1) > 1e-4:
    raise SystemExit("the classes do not add up to 1")
