"""Executors: one instance of a compiled graph on one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from tvm_ffi import Shape

from convoy.errors import InvalidOption
from convoy.graph_executor.timing import measure
from convoy.runtime.values import host_value

if TYPE_CHECKING:
    import tvm
    from tvm.runtime.module import BenchmarkResult

    from convoy.runtime.session import Session
    from convoy.runtime.values import Value


class InputNotFound(InvalidOption, RuntimeError):
    """An input name that the graph does not have; a RuntimeError as in TVM."""


class Executor:
    """One instance of a compiled graph on one device, as `lib["default"](dev)` returns it.

    Attributes:
        session: Runs the graph.
        sources: Inputs of set_input_zero_copy, by index: read again before every run.
        targets: Outputs that set_output_zero_copy asked for, by index.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.sources: dict[int, Value] = {}
        self.targets: dict[int, tvm.runtime.Tensor] = {}

    def __getitem__(self, name: str) -> Callable[..., object]:
        module = GraphModule(self)
        if name.startswith("_") or not callable(getattr(module, name, None)):
            raise InvalidOption(f"function '{name}'", "a method of GraphModule")
        return getattr(module, name)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., object]:
        """Return a method of GraphModule."""
        del query_imports
        return self[name]

    def time_evaluator(
        self,
        func_name: str,
        dev: tvm.runtime.Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that times runs; arguments are those of `GraphModule.benchmark`.

        Args:
            cache_flush_bytes: Must be 0: runs follow one another as in use.
            f_preproc: Must be empty.
        """
        if cache_flush_bytes or f_preproc:
            raise InvalidOption("cache_flush_bytes or f_preproc", "neither of them")

        def evaluate(*args: object) -> BenchmarkResult:
            if args:
                raise InvalidOption(f"{len(args)} arguments", "inputs by set_input")
            return GraphModule(self).benchmark(
                dev, func_name, repeat, number, min_repeat_ms, limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms, repeats_to_cooldown=repeats_to_cooldown,
            )  # fmt: skip

        return evaluate


class GraphModule:
    """Run a compiled graph.

    Inputs have fixed buffers on the device that `set_input` copies into, so that a weight replaced
    between two runs is seen by the second one, also when a CUDA graph is replayed.

    Args:
        module: What `lib["default"](dev)` returns.
    """

    def __init__(self, module: Executor) -> None:
        if not isinstance(module, Executor):
            raise InvalidOption(f"a {type(module).__name__}", 'what lib["default"](dev) returns')
        self.module = module
        self._session = module.session

    # ---- inputs

    def set_input(
        self, key: str | int | None = None, value: Value | None = None, **params: Value
    ) -> None:
        """Copy values into inputs.

        Args:
            key: The name or index of an input.
            value: A numpy array or TVM tensor for it.
            **params: Further inputs by name; unknown names are ignored.

        Raises:
            InputNotFound: The graph has no input `key`.
            InvalidOption: A value of another shape.
        """
        if key is not None:
            self._set(self._need(key), value)
        for name, array in params.items():
            index = self.get_input_index(name)
            if index >= 0:
                self._set(index, array)

    def _set(self, index: int, value: Value) -> None:
        self.module.sources.pop(index, None)
        self._session.set_input(index, self._cast(index, value))

    def _cast(self, index: int, value: Value) -> Value:
        """Cast an array to the dtype of an input, as TVM does."""
        dtype = str(self._session.input_info[index][2])
        if str(getattr(value, "dtype", "")) == dtype or dtype == "bfloat16":
            return value
        try:
            return np.asarray(host_value(value)).astype(dtype)
        except ValueError:
            name = self._session.input_info[index][0]
            raise InvalidOption(f"{value!r} for input {name!r}", "an array of numbers") from None

    def set_input_zero_copy(
        self, key: str | int, value: Value | None = None, **params: Value
    ) -> None:
        """Use a tensor as an input of all following runs, with its values at the time of each run.

        It is copied on the device at the start of each run, because a replayed CUDA graph reads
        from a fixed address.
        """
        for name, tensor in [(key, value), *params.items()]:
            index = self._need(name)
            self._session.set_input(index, tensor)  # checks shape and dtype
            self.module.sources[index] = tensor

    def set_output_zero_copy(self, key: int | str, value: tvm.runtime.Tensor) -> None:
        """Write an output into a tensor after each following run."""
        index = self._output_index(key)
        info = self._session.meta.outputs[index]
        if tuple(value.shape) != info.shape or str(value.dtype) != info.dtype:
            raise InvalidOption(
                f"a tensor of {value.dtype}{tuple(value.shape)} for output {index}",
                f"{info.dtype}{info.shape}",
            )
        self.module.targets[index] = value

    def _output_index(self, key: int | str) -> int:
        names = [t.name for t in self._session.meta.outputs]
        index = names.index(key) if key in names else key
        if not isinstance(index, int) or not 0 <= index < len(names):
            raise InvalidOption(f"output {key!r}", f"0 to {len(names) - 1}")
        return index

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set inputs from the bytes of a parameter file; unknown names are ignored."""
        from convoy.relay.params import read_params

        self.set_input(None, None, **read_params(bytes(params_bytes)))

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Set the inputs named in a parameter file to another module's values."""
        from convoy.relay.params import read_params

        for name in read_params(bytes(params_bytes)):
            if self.get_input_index(name) >= 0:
                self.set_input(name, other.get_input(name))

    def _need(self, key: str | int) -> int:
        names = self._names()
        if isinstance(key, str) and key in names:
            return names.index(key)
        if isinstance(key, (int, np.integer)) and 0 <= key < len(names):
            return int(key)
        raise InputNotFound(f"Could not find '{key}' in graph's inputs", ", ".join(names))

    def _names(self) -> list[str]:
        return [name for name, _, _ in self._session.input_info]

    # ---- running

    def run(self, **input_dict: Value) -> None:
        """Run once, after setting the given inputs; returns before the device has finished."""
        self.set_input(**input_dict)  # type: ignore[arg-type]  # key= and value= as in TVM
        for index, tensor in self.module.sources.items():
            self._session.set_input(index, tensor)
        self._session.run()
        for index, tensor in self.module.targets.items():
            tensor.copyfrom(self._session.output(index))

    # ---- outputs and what is known of the graph

    def get_num_outputs(self) -> int:
        """Return the number of outputs."""
        return self._session.num_outputs

    def get_num_inputs(self) -> int:
        """Return the number of inputs."""
        return len(self._session.input_info)

    def get_input(
        self, index: int | str, out: tvm.runtime.Tensor | None = None
    ) -> tvm.runtime.Tensor | None:
        """Return the tensor of an input, by index or name; copy it into `out` if given.

        Returns None for an unknown name, as in TVM.
        """
        if isinstance(index, str) and self.get_input_index(index) < 0:
            return None
        tensor = self._session.input(self._need(index))
        return _copied(tensor, out)

    def get_input_index(self, name: str) -> int:
        """Return the index of an input, -1 for an unknown name."""
        names = self._names()
        return names.index(name) if name in names else -1

    def get_input_info(self) -> tuple[dict[str, Shape], dict[str, str]]:
        """Return shapes by name, and dtypes by name."""
        info = self._session.input_info
        return {n: Shape(s) for n, s, _ in info}, {n: d for n, _, d in info}

    def get_output(
        self, index: int | str, out: tvm.runtime.Tensor | None = None
    ) -> tvm.runtime.Tensor:
        """Return an output of the last run; copy it into `out` if given."""
        return _copied(self._session.output(self._output_index(index)), out)

    def debug_get_output(self, node: object, out: object = None) -> None:
        """Raise NotImplementedError, as in TVM outside the debug executor."""
        raise NotImplementedError("Please use debugger.debug_executor as graph_executor instead.")

    def __getitem__(self, key: str) -> Callable[..., object]:
        return self.module[key]

    def benchmark(
        self,
        device: tvm.runtime.Device,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Value,
    ) -> BenchmarkResult:
        """Time runs.

        Args:
            device: The device to wait for.
            func_name: "run".
            repeat: The number of measurements.
            number: The number of runs in a measurement, which is their mean; the device is waited
                for once, at its end.
            min_repeat_ms: Increase `number` until a measurement takes at least so long.
            limit_zero_time_iterations: Accepted.
            end_to_end: Copy the inputs `kwargs` to the device and the outputs back in every run.
            cooldown_interval_ms: Sleep so long after every `repeats_to_cooldown` measurements.
            repeats_to_cooldown: See `cooldown_interval_ms`.
            **kwargs: Inputs by name.

        Returns:
            TVM's BenchmarkResult, in seconds: mean, median, min, max, std, results.
        """
        if func_name != "run":
            raise InvalidOption(f"func_name='{func_name}'", "'run'")
        del limit_zero_time_iterations  # guards a timer that can read zero; this one cannot
        self.run(**kwargs)
        once = (lambda: self._round_trip(kwargs)) if end_to_end else self.run
        cooldown = (cooldown_interval_ms, repeats_to_cooldown)
        return measure(once, device, number, repeat, min_repeat_ms, cooldown)

    def _round_trip(self, inputs: Mapping[str, Value]) -> None:
        self.run(**inputs)
        for index in range(self.get_num_outputs()):
            self.get_output(index).numpy()


def _copied(tensor: tvm.runtime.Tensor, out: tvm.runtime.Tensor | None) -> tvm.runtime.Tensor:
    if out is None:
        return tensor
    tensor.copyto(out)
    return out
