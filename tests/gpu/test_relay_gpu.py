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


HEAD = '#[version = "0.0.5"]\n'


@pytest.mark.parametrize("flag", [True, False])
def test_branches(flag: bool) -> None:
    text = f"""{HEAD}
    def @main(%c: bool, %x: Tensor[(2, 8), float32], %w: Tensor[(4, 8), float32]) {{
      %0 = nn.dense(%x, %w, units=4);
      if (%c) {{ nn.relu(%0) }} else {{ negative(exp(%0)) }}
    }}"""
    machine = relay.vm.VirtualMachine(relay.vm.compile(relay.parse(text), "cuda"), tvm.cuda(0))
    x, w = (np.random.default_rng(n).normal(size=(n, 8)).astype("float32") for n in (2, 4))
    y = x @ w.T
    want = np.maximum(y, 0) if flag else -np.exp(y)
    np.testing.assert_allclose(machine.run(np.array(flag), x, w).numpy(), want, 1e-4, 1e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_unknown_batch(batch: int) -> None:
    text = f"""{HEAD}
    def @main(%x: Tensor[(?, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) {{
      %0 = nn.relu(nn.conv2d(%x, %w, padding=[1, 1, 1, 1]));
      nn.batch_flatten(nn.max_pool2d(%0, pool_size=[2, 2], strides=[2, 2]))
    }}"""
    mod = relay.parse(text)
    rng = np.random.default_rng(batch)
    x = rng.normal(size=(batch, 3, 8, 8)).astype("float32")
    w = rng.normal(size=(4, 3, 3, 3)).astype("float32")
    got, want = (
        relay.vm.VirtualMachine(relay.vm.compile(mod, kind), device).run(x, w).numpy()
        for kind, device in (("cuda", tvm.cuda(0)), ("llvm", tvm.cpu(0)))
    )
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


def test_a_quantized_layer() -> None:
    text = f"""{HEAD}def @main(%x: Tensor[(1, 16, 8, 8), int8], %w: Tensor[(8, 16, 3, 3), int8]) {{
      %0 = qnn.conv2d(%x, %w, 3, 0, 0.1f, 0.2f, padding=[1, 1, 1, 1], channels=8,
                      kernel_size=[3, 3], out_dtype="int32");
      qnn.requantize(%0, 0.02f, 0, 0.7f, 1, axis=1, out_dtype="int8")
    }}"""
    rng = np.random.default_rng(0)
    params = {"w": rng.integers(-128, 127, (8, 16, 3, 3)).astype("int8")}
    x = rng.integers(-128, 127, (1, 16, 8, 8)).astype("int8")
    results = []
    for kind in ("cuda", "llvm"):
        device = tvm.cuda(0) if kind == "cuda" else tvm.cpu(0)
        library = relay.build(relay.parse(text), kind, params=params)
        module = graph_executor.GraphModule(library["default"](device))
        module.run(x=x)
        results.append(module.get_output(0).numpy())
    np.testing.assert_array_equal(*results)
