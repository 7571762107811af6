"""`relay.op.strategy.generic`: strategies by target, and schedules, which have no effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convoy.relay.lazy import tvm
from convoy.relay.removed import removed_names


class GenericFunction:
    """A function with another body for some targets, `@f.register("cuda")`."""

    def __init__(self, default: Callable[..., Any]) -> None:
        self.default, self.__doc__ = default, default.__doc__
        self._by_key: dict[str, Callable[..., Any]] = {}

    def register(
        self, key: str | Sequence[str], function: Any = None, override: bool = False
    ) -> Any:
        """Set the body for targets with one of the keys; without one return a decorator."""
        del override

        def register(found: Callable[..., Any]) -> Callable[..., Any]:
            self._by_key.update(dict.fromkeys([key] if isinstance(key, str) else key, found))
            return found

        return register if function is None else register(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        target = tvm.target.Target.current(allow_none=True)
        keys = list(target.keys) if target is not None else []
        body = next((self._by_key[key] for key in keys if key in self._by_key), self.default)
        return body(*args, **kwargs)


def override_native_generic_func(func_name: str) -> Callable[[Any], GenericFunction]:
    """Make a generic function of what is decorated."""
    del func_name
    return GenericFunction


def wrap_topi_schedule(topi_schedule: Any) -> Any:
    """Return the schedule, which has no effect."""
    return topi_schedule


def naive_schedule(attrs: Any, outs: Any, target: Any) -> None:
    """Do nothing: TVM schedules the loops."""


__getattr__ = removed_names("relay.op.strategy.generic")
