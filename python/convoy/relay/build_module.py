"""`relay.build_module`: building, executors, and binding parameters to functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.relay.binding import bind_params_by_name
from convoy.relay.build import build
from convoy.relay.executor import Executor, create_executor
from convoy.relay.transform.pipeline import optimize

__all__ = [
    "AotExecutor",
    "BuildModule",
    "GraphExecutor",
    "bind_params_by_name",
    "build",
    "create_executor",
]

GraphExecutor = AotExecutor = Executor


class BuildModule:
    """Build a network, and ask for its parts afterwards."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._factory: Any = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set values of parameters by name, for `build` and `optimize`."""
        self._params = dict(params)

    def build(
        self,
        mod: Any,
        target: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> tuple[str, Any, dict[str, Any]]:
        """Build as `relay.build` does; return the graph, the library and the parameters."""
        self._factory = build(mod, target, params=params or self._params, **options)
        return self.get_graph_json(), self.get_module(), self.get_params()

    def optimize(
        self, mod: Any, target: Any = None, *, params: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Run Relay's passes; see `relay.optimize`."""
        return optimize(mod, target, params or self._params)

    def get_graph_json(self) -> str:
        """Return the description of the network that was built."""
        found: str = self._factory.graph_json
        return found

    get_json = get_graph_json

    def get_module(self) -> Any:
        """Return the library of the network that was built."""
        return self._factory

    def get_params(self) -> dict[str, Any]:
        """Return the parameters of the network that was built, which holds them itself."""
        return dict(self._factory.params)
