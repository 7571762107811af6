"""`VirtualMachine.module`: the functions of a machine by name, as TVM's runtime module has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy.errors import InvalidOption
from convoy.graph_executor.timing import measure

_NAMES = (
    "get_input_index", "invoke", "invoke_stateful", "get_outputs", "set_input", "set_one_input",
)  # fmt: skip


class Functions:
    """The functions of a virtual machine: `vm.module["invoke"]("main", x)`."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in _NAMES:
            raise InvalidOption(f"function '{name}'", ", ".join(_NAMES))
        found: Callable[..., Any] = getattr(self._machine, name)
        return found

    def time_evaluator(
        self,
        func_name: str,
        dev: Any,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
    ) -> Callable[..., Any]:
        """Return a function that times calls of one, with its arguments; see `benchmark`."""
        del limit_zero_time_iterations  # guards a timer that can read zero; this one cannot
        function = self[func_name]

        def evaluate(*args: Any) -> Any:
            function(*args)
            return measure(lambda: function(*args), dev, number, repeat, min_repeat_ms)

        return evaluate
