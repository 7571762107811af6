"""Running a package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from convoy.errors import InvalidOption
from convoy.graph_executor import GraphModule
from convoy.relay.tvm018.driver.tvmc.model import TVMCPackage

_FILLS: dict[str, Any] = {
    "zeros": lambda shape: np.zeros(shape),
    "ones": lambda shape: np.ones(shape),
    "random": lambda shape: np.random.default_rng().uniform(0, 10, shape),
}


@dataclass
class TVMCResult:
    """The outputs of a run, by `output_0` and so on, and its times.

    Attributes:
        outputs: Arrays by name.
        times: What `GraphModule.benchmark` returned.
    """

    outputs: dict[str, np.ndarray]
    times: Any

    def get_output(self, name: str) -> np.ndarray:
        """Return an output."""
        return self.outputs[name]

    def save(self, output_path: str | os.PathLike[str]) -> None:
        """Write the outputs as `.npz`."""
        np.savez(output_path, **self.outputs)  # type: ignore[arg-type]

    def format_times(self) -> str:
        """Return the times as a table."""
        return str(self.times)

    def __str__(self) -> str:
        return f"{self.format_times()}\nOutput Names:\n {list(self.outputs)}"


def run(
    tvmc_package: TVMCPackage,
    device: str,
    rpc_key: str | None = None,
    hostname: str | None = None,
    port: Any = 9090,
    inputs: Mapping[str, Any] | str | None = None,
    fill_mode: str = "random",
    repeat: int = 10,
    number: int = 10,
    profile: bool = False,
    end_to_end: bool = False,
    **options: Any,
) -> TVMCResult:
    """Run a package and time it.

    Args:
        tvmc_package: The package.
        device: "cpu" or "cuda".
        rpc_key, hostname: Must be None.
        port: Accepted.
        inputs: Arrays by name, or the path of an `.npz` of them.
        fill_mode: How to fill the other inputs: "zeros", "ones" or "random".
        repeat, number: Runs to time.
        profile: Must be False; `contrib.debugger.debug_executor` profiles.
        end_to_end: Whether to time copies of inputs and outputs too.
        **options: Accepted.

    Raises:
        InvalidOption: An unknown mode, another machine, or profiling.
    """
    del port, options
    if rpc_key or hostname:
        raise InvalidOption("rpc_key or hostname", "neither", "Run on the machine itself")
    if profile:
        raise InvalidOption("profile=True", "False", "debug_executor.GraphModuleDebug profiles")
    if fill_mode not in _FILLS:
        raise InvalidOption(f"fill_mode {fill_mode!r}", f"one of {', '.join(_FILLS)}")
    place = tvm.device(device)
    module = GraphModule(tvmc_package.module["default"](place))
    given = dict(np.load(inputs)) if isinstance(inputs, str) else dict(inputs or {})
    shapes, dtypes = module.get_input_info()
    for name, shape in shapes.items():
        value = given.pop(name) if name in given else _FILLS[fill_mode](tuple(shape))
        module.set_input(name, np.asarray(value).astype(dtypes[name]))
    if given:
        raise InvalidOption(f"input {next(iter(given))!r}", f"one of {', '.join(shapes)}")
    module.run()
    outputs = {f"output_{i}": module.get_output(i).numpy() for i in range(module.get_num_outputs())}
    return TVMCResult(
        outputs, module.benchmark(place, "run", repeat, number, end_to_end=end_to_end)
    )


run_module = run
