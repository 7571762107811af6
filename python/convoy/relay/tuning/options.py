"""Options of TVM's tuners: where kernels are compiled and measured."""

from __future__ import annotations

from typing import Any

from convoy.errors import InvalidOption


class SearchOption:
    """Part of TVM's tuner (a policy, a cost model, measured states): without effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class LocalBuilder:
    """Compile on this machine, which Convoy does on all cores; options have no effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class LocalRunner:
    """Measure on the GPUs of this machine, as long as a measurement needs; options have no
    effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class RPCRunner:
    """Measure on a machine behind a tracker: can be written down, and no tuner takes it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


def check_runner(runner: Any) -> None:
    """Check that a runner measures here.

    Raises:
        InvalidOption: It is an RPCRunner, of any of TVM's tuners.
    """
    if type(runner).__name__ == "RPCRunner" or runner == "rpc":
        raise InvalidOption(
            "an RPCRunner",
            "a LocalRunner",
            "Tune on the machine with the GPU; `convoy tune --ray` uses several",
        )
