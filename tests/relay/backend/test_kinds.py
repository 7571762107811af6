"""Kinds of executor and runtime check their options."""

from __future__ import annotations

import pytest

from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay.backend import Executor, Runtime
from convoy.relay.testing import mlp


def test_options() -> None:
    assert not Executor("graph")["link-params"]
    assert Executor("aot", {"interface-api": "c"})["interface-api"] == "c"
    assert "crt" in Runtime.list_registered()
    assert Runtime.list_registered_options(Runtime("crt")) == {"system-lib": "runtime.BoxBool"}
    assert Runtime("cpp") == Runtime("cpp") != Runtime("crt")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grph", {}, 'Executor "grph" is not defined'),
        ("graph", {"linked": True}, "not available"),
        ("graph", {"link-params": "yes"}, "runtime.BoxBool"),
    ],
)
def test_errors(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Executor(name, options)


def test_nothing_is_built_for_microcontrollers() -> None:
    mod, params = mlp.get_workload(1)
    with pytest.raises(InvalidOption, match="crt"):
        relay.build(mod, "llvm", params=params, runtime=Runtime("crt"))
