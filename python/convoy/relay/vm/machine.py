"""Running an Executable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convoy.errors import InvalidOption
from convoy.graph_executor.timing import measure
from convoy.relay.evaluate.interpreter import to_user
from convoy.relay.evaluate.values import MISSING
from convoy.relay.lazy import tvm
from convoy.relay.params import to_array
from convoy.relay.vm.executable import Executable, Interpreted
from convoy.relay.vm.functions import Functions
from convoy.relay.vm.values import cast_input, copy, flat, leaves, nested


class VirtualMachine:
    """Run an Executable on a device. Inputs may be numpy arrays or TVM tensors.

    Args:
        exe: What `relay.vm.compile` returns.
        device: The device, or a list of devices, of which the first counts; None if `init` sets it.
        memory_cfg: Accepted: memory is planned when compiling.
    """

    def __init__(self, exe: Executable, device: Any = None, memory_cfg: Any = None) -> None:
        if not isinstance(exe, Executable):
            raise InvalidOption(f"a {type(exe).__name__}", "what relay.vm.compile returns")
        del memory_cfg
        self._exe = exe
        self._inputs: dict[str, Any] = {}
        self._result: list[Any] = []
        if device is not None:
            self.init(device)

    def init(self, device: Any) -> None:
        """Set the device, which scripts for TVM 0.6 and 0.7 do apart."""
        exe = self._exe
        self._device = device[0] if isinstance(device, (list, tuple)) else device
        if isinstance(exe, Interpreted):
            self._interpreter = exe.interpreter(self._device)
        elif exe.is_graph:
            self._session = exe.compiled.session(self._device)
        elif exe.compiled is not None:
            self._machine = tvm.relax.VirtualMachine(exe.compiled, self._device)

    @property
    def module(self) -> Functions:
        """The functions of the machine by name."""
        return Functions(self)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set inputs for `invoke_stateful`, by position or by name."""
        self._check(func_name)
        self._inputs = self._named(args, kwargs)

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set one input for `invoke_stateful`: an index or a name and the value, or name=value."""
        self._check(func_name)
        if len(args) + 2 * len(kwargs) != 2:
            raise InvalidOption(f"{len(args) + 2 * len(kwargs)} arguments", "one input")
        key, value = args or next(iter(kwargs.items()))
        names = self._exe.input_names
        if isinstance(key, int) and 0 <= key < len(names):
            key = names[key]
        self._inputs.update(self._named((), {str(key): value}))

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """Return the index of an input, -1 for an unknown name."""
        self._check(func_name)
        names = self._exe.input_names
        return names.index(input_name) if input_name in names else -1

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any], output_args: Sequence[Any]
    ) -> None:
        """Run with inputs by name; copy the results into tensors.

        Raises:
            InvalidOption: Another number of tensors than of results.
        """
        self.invoke(func_name, **input_args)
        if len(output_args) != len(self._result):
            raise InvalidOption(f"{len(output_args)} tensors", f"{len(self._result)} for results")
        for tensor, result in zip(output_args, self._result, strict=True):
            tensor.copyfrom(result)

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Run; return a tensor, or a list where the function returns a tuple, nested alike."""
        if isinstance(self._exe, Interpreted):
            return self._evaluate(func_name, args, kwargs)
        self._check(func_name)
        values = self._named(args, kwargs) if args or kwargs else self._inputs
        missing = [n for n in self._exe.input_names if n not in values]
        if missing:
            raise InvalidOption(f"no value for {', '.join(missing)}", "all inputs")
        self._result = self._run([values[n] for n in self._exe.input_names])
        return nested(iter(self._result), self._exe.result)

    def _evaluate(self, func_name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a function of a module that is evaluated."""
        machine = self._interpreter
        function = machine.function(func_name)
        names = [p.name_hint for p in function.function.params]
        unknown = [name for name in kwargs if name not in names]
        if unknown:
            raise InvalidOption(f"input '{unknown[0]}'", ", ".join(names))
        rest = iter(args)
        values = [kwargs[n] if n in kwargs else next(rest, MISSING) for n in names]
        missing = [n for n, v in zip(names, values, strict=True) if v is MISSING]
        if missing or next(rest, MISSING) is not MISSING:
            raise InvalidOption(f"{len(args) + len(kwargs)} inputs", str(len(names)))
        types = [p.type_annotation for p in function.function.params]
        converted = [machine.value(v, t) for v, t in zip(values, types, strict=True)]
        result = machine.call(function, converted)
        self._result = flat(result) if isinstance(result, tuple) else [result]
        return to_user(result)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run `main`."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Run with the inputs of set_input; get_outputs returns the results."""
        self.invoke(func_name, *args, **kwargs)

    def get_outputs(self) -> list[Any]:
        """Return the results of the last run."""
        return list(self._result)

    def benchmark(
        self,
        device: Any,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Time runs; return TVM's BenchmarkResult, in seconds.

        Arguments are those of `GraphModule.benchmark`; inputs are copied to the device in every
        run, and with `end_to_end` the results back.
        """
        del limit_zero_time_iterations  # guards a timer that can read zero; this one cannot
        values = self._named(args, kwargs) if args or kwargs else dict(self._inputs)
        self.invoke(func_name, **values)

        def once() -> None:
            self.invoke(func_name, **values)
            if end_to_end:
                for tensor in self._result:
                    tensor.numpy()

        return measure(once, device, number, repeat, min_repeat_ms)

    def _check(self, func_name: str) -> None:
        if func_name != "main":
            raise InvalidOption(f"function '{func_name}'", "'main'")

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by name; positional ones fill the other inputs in order.

        A tuple counts as its fields.
        """
        names = self._exe.input_names
        args = tuple(leaf for i, arg in enumerate(args) for _, leaf in leaves(str(i), arg))
        kwargs = dict(leaf for name, value in kwargs.items() for leaf in leaves(name, value))
        unknown = [n for n in kwargs if n not in names]
        if unknown:
            raise InvalidOption(f"input '{unknown[0]}'", ", ".join(names))
        rest = [n for n in names if n not in kwargs]
        if len(args) > len(rest):
            raise InvalidOption(f"{len(args) + len(kwargs)} inputs", str(len(names)))
        return {**kwargs, **dict(zip(rest, args, strict=False))}

    def _run(self, values: list[Any]) -> list[Any]:
        values = [
            cast_input(value, self._exe.input_dtypes.get(name), name)
            for name, value in zip(self._exe.input_names, values, strict=True)
        ]
        if self._exe.compiled is None:
            return self._run_specialized(values)
        if self._exe.is_graph:
            for position, value in enumerate(values):
                self._session.set_input(position, value)
            self._session.run()
            # The session keeps its outputs' memory for the next run.
            outputs = [self._session.output(i) for i in range(self._session.num_outputs)]
            return [copy(tensor, self._device) for tensor in outputs]
        tensors = [
            tvm.runtime.tensor(to_array(value, f"input '{name}'"), self._device)
            for name, value in zip(self._exe.input_names, values, strict=True)
        ]
        try:
            return flat(self._machine["main"](*tensors))
        except (RuntimeError, TypeError, ValueError) as error:
            if self._exe.specialized is not None:
                return self._run_specialized(values)
            words = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidOption(f"inputs that do not fit: {words}") from error

    def _run_specialized(self, values: list[Any]) -> list[Any]:
        assert self._exe.specialized is not None
        arrays = [to_array(v) for v in values]
        return flat(self._exe.specialized.run(arrays, self._device))
