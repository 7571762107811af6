"""Running Relay modules in tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from convoy import graph_executor, relay

from ..helpers.stock import machine

HEAD = '#[version = "0.0.5"]\n'


def run_graph(
    mod: Any, inputs: dict[str, np.ndarray], params: dict[str, Any] | None = None
) -> list[np.ndarray]:
    """Outputs on the CPU through relay.build and GraphModule."""
    lib = relay.build(mod, target="llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def run_stock(mod: Any, *inputs: Any, params: dict[str, Any] | None = None) -> list[np.ndarray]:
    """Outputs on the CPU of the converted module through TVM's own pipeline."""
    main = machine(relay.to_relax(mod, params))["main"]
    return flatten(main(*(tvm.runtime.tensor(np.asarray(x)) for x in inputs)))


def flatten(result: Any) -> list[np.ndarray]:
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [array for part in result for array in flatten(part)]


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference relative to the largest value."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if not want.size:
        return 0.0
    a, b = got.astype("float64"), want.astype("float64")
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
