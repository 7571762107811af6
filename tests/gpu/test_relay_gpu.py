"""Networks of relay.testing through relay.build and GraphModule, as a script for TVM does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from convoy import graph_executor, relay
from convoy.relay import testing

pytestmark = pytest.mark.gpu

NETWORKS = {
    "mlp": lambda: testing.mlp.get_workload(1),
    "squeezenet": lambda: testing.squeezenet.get_workload(version="1.1"),
    "resnet20": lambda: testing.resnet.get_workload(2, 10, 20, (3, 32, 32)),
}
LIMITS = {"float32": 1e-5, "float16": 1e-2}


def logits(mod: relay.IRModule) -> relay.IRModule:
    """The network without its last softmax, which hides errors."""
    main = mod["main"]
    return relay.IRModule.from_expr(relay.Function(main.params, main.body.args[0]))


def run(mod: relay.IRModule, params: Any, target: str, data: np.ndarray, **options: Any) -> Any:
    device = tvm.device(target if target == "cuda" else "cpu", 0)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target=target, params=params, **options)
    module = graph_executor.GraphModule(library["default"](device))
    for _ in range(3):  # eager, captured, replayed
        module.set_input("data", data)
        module.run()
    return module.get_output(0).numpy()


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, precision: str) -> None:
    mod, params = NETWORKS[name]()
    mod = logits(relay.parse(mod.astext()))
    shape = mod["main"].params[0].checked_type.concrete_shape
    data = np.random.default_rng(7).uniform(-1, 1, shape).astype("float32")
    want = run(mod, params, "llvm", data)
    got = run(mod, params, "cuda", data, precision=precision, measure=False)
    assert np.abs(got - want).max() <= LIMITS[precision] * np.abs(want).max()
