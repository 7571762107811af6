"""Passes of users, Sequential and PassContext."""

from __future__ import annotations

from typing import Any

import pytest

from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay import transform
from convoy.relay import tvm018 as tvm


def module() -> relay.IRModule:
    x = relay.var("x", shape=(3,))
    return relay.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))


@transform.function_pass(opt_level=1)
def negate(func: relay.Function, mod: relay.IRModule, ctx: Any) -> relay.Function:
    return relay.Function(func.params, relay.negative(func.body))


@transform.module_pass(opt_level=2, name="twice")
class Twice:
    def __init__(self, times: int) -> None:
        self.times = times

    def transform_module(self, mod: relay.IRModule, ctx: Any) -> relay.IRModule:
        for _ in range(self.times):
            mod = negate(mod)
        return mod


def calls(mod: relay.IRModule) -> list[str]:
    nodes: list[Any] = []
    relay.analysis.post_order_visit(mod["main"], nodes.append)
    return [n.op.name for n in nodes if isinstance(n, relay.Call)]


def test_passes_of_users() -> None:
    assert isinstance(negate, tvm.transform.Pass)
    assert (negate.info.name, negate.info.opt_level) == ("negate", 1)
    assert calls(negate(module())) == ["nn.relu", "negative"]
    twice = Twice(2)
    assert isinstance(twice, tvm.transform.Pass) and twice.info.name == "twice"
    assert calls(twice(module())) == ["nn.relu", "negative", "negative"]
    checked = negate(module())["main"].body.checked_type
    assert checked == relay.TensorType((3,))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"opt_level": 3}, 3),
        ({"opt_level": 1}, 1),
        ({"opt_level": 0}, 0),
        ({"opt_level": 3, "disabled_pass": ["negate"]}, 2),
        ({"opt_level": 0, "required_pass": ["twice"]}, 2),
    ],
)
def test_sequential_asks_the_context(options: dict[str, Any], expected: int) -> None:
    seq = tvm.transform.Sequential([negate, Twice(2)])
    with tvm.transform.PassContext(**options):
        assert calls(seq(module())).count("negative") == expected


def test_context_is_current_inside_with() -> None:
    outer = tvm.transform.PassContext.current()
    with tvm.transform.PassContext(opt_level=4, config={"relay.FuseOps.max_depth": 3}) as context:
        assert tvm.transform.PassContext.current() is context
        assert context.config["relay.FuseOps.max_depth"] == 3
    assert tvm.transform.PassContext.current().opt_level == outer.opt_level == 2
    with pytest.raises(InvalidOption, match=r"relay\.FuseOps\.max_depth"):
        tvm.transform.PassContext(config={"relay.FuseOps.maxdepth": 3})


def test_instruments_see_every_pass() -> None:
    seen: list[str] = []

    class Instrument:
        def should_run(self, mod: Any, info: Any) -> bool:
            return bool(info.name != "twice")

        def run_before_pass(self, mod: Any, info: Any) -> None:
            if info.name != "InferType":  # which follows each pass over functions
                seen.append(f"before {info.name}")

        def run_after_pass(self, mod: Any, info: Any) -> None:
            if info.name != "InferType":
                seen.append(f"after {info.name}")

    with tvm.transform.PassContext(opt_level=3, instruments=[Instrument()]):
        mod = tvm.transform.Sequential([negate, Twice(2)], name="both")(module())
    assert seen == ["before both", "before negate", "after negate", "after both"]
    assert calls(mod).count("negative") == 1


def test_not_a_pass() -> None:
    with pytest.raises(TypeError, match="pass"):
        tvm.transform.Sequential([3])
    with pytest.raises(ValueError, match="opt_level"):
        transform.function_pass(lambda func, mod, ctx: func)


def test_types_of_expressions() -> None:
    x = relay.var("x", shape=(2, 3))
    found = [transform.InferTypeLocal(e) for e in (x, relay.sum(x, 1), relay.Function([x], x))]
    assert [str(t) for t in found[:2]] == ["Tensor[(2, 3), float32]", "Tensor[(2), float32]"]
    assert found[2].ret_type == found[0]


def test_trace_is_called_around_passes() -> None:
    seen: list[tuple[str, bool]] = []
    with relay.build_config(trace=lambda mod, info, before: seen.append((info.name, before))):
        negate(module())
    assert seen[0] == ("negate", True) and seen[-1] == ("negate", False)
