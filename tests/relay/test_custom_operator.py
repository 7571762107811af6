"""Operators of users and marks of devices: typed, printed, saved; marks do not change values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption, RelayTypeError, UnsupportedOp
from convoy.relay import tvm018 as tvm


def test_relations_by_name_and_by_function() -> None:
    relay.op.register("custom.scale", "scaled values")
    op = relay.op.get("custom.scale")
    op.set_num_inputs(2)
    op.add_argument("data", "Tensor", "values")
    op.add_argument("factor", "Tensor", "factors")
    op.add_type_rel("Broadcast")
    relay.op.register_stateful("custom.scale", False)
    assert op.num_inputs == 2 and op.get_attr("TOpIsStateful") is False
    x, y = relay.var("x", shape=(3, 1)), relay.var("y", shape=(4,))
    call = relay.testing.run_infer_type(relay.Call(op, [x, y]))
    assert call.checked_type == relay.TensorType((3, 4))

    relay.op.register("custom.halves")
    halves = relay.op.get("custom.halves")
    halves.set_num_inputs(1)
    halves.add_type_rel(
        "Halves", lambda types, attrs: relay.TensorType((types[0].shape[0] // 2,), types[0].dtype)
    )
    call = relay.testing.run_infer_type(relay.Call(halves, [y]))
    assert call.checked_type == relay.TensorType((2,))
    with pytest.raises(UnsupportedOp, match=r"custom\.halves"):
        relay.build(relay.IRModule.from_expr(call), "llvm")


def test_computes_and_strategies() -> None:
    """What is registered is compiled into the network, and chosen by the target."""
    relay.op.register("custom.swap")
    swap = relay.op.get("custom.swap")
    swap.set_num_inputs(1)
    swap.add_type_rel("Swap", lambda types, attrs: relay.TupleType(types[0].fields[::-1]))

    @relay.op.register_compute("custom.swap")
    def compute_swap(attrs: Any, inputs: Any, out_type: Any) -> Any:
        return [tvm.topi.identity(tensor) for tensor in inputs[::-1]]

    relay.op.register("custom.scan")
    scan = relay.op.get("custom.scan")
    scan.set_num_inputs(1)
    scan.add_type_rel("Identity")

    @tvm.target.override_native_generic_func("custom_scan_strategy")
    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        found = relay.op.OpStrategy()
        sums, schedule = lambda a, i, o: [tvm.topi.cumsum(i[0], axis=0)], lambda *_: None
        found.add_implementation(sums, relay.op.strategy.wrap_topi_schedule(schedule))
        found.add_implementation(lambda a, i, o: [i[0]], schedule, plevel=5)
        return found

    @strategy.register(["cuda", "gpu"])
    def strategy_cuda(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        found = relay.op.OpStrategy()
        found.add_implementation(lambda a, i, o: tvm.topi.negative(i[0]), None)
        return found

    relay.op.register_strategy("custom.scan", strategy)
    relay.op.register_injective_schedule("custom.scan")
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(2, 2))
    pair = relay.TupleWrapper(relay.Call(swap, [relay.Tuple([x, y])]), 2)
    body = relay.Tuple([relay.Call(scan, [pair[0]]), relay.nn.relu(pair[1])])
    run = relay.create_executor("graph", target="llvm")
    given = np.array([-1, 0, 2], "float32"), np.arange(4, dtype="float32").reshape(2, 2)
    sums, values = run.evaluate(relay.Function([x, y], body))(*given)
    np.testing.assert_array_equal(sums.numpy(), given[1].cumsum(0))
    np.testing.assert_array_equal(values.numpy(), [0, 0, 2])
    with tvm.target.Target("cuda"):
        mod = relay.to_relax(relay.Function([y], relay.Call(scan, [y])))
    assert "T.float32(-1.0)" in mod.script() or "T.float32(-1)" in mod.script()
    with pytest.warns(UserWarning, match=r"nn\.relu is computed by"):
        relay.op.register_compute("nn.relu", compute_swap)
    relay.op.register_strategy("custom.scan", lambda *_: relay.op.OpStrategy())
    with pytest.raises(InvalidOption, match="strategy without"):
        run.evaluate(relay.Function([y], relay.Call(scan, [y])))


def test_mistakes() -> None:
    op = relay.op.register("custom.wrong")
    with pytest.raises(InvalidOption, match="registered before"):
        relay.op.register("custom.wrong")
    with pytest.raises(InvalidOption, match="registered before"):
        relay.op.register("nn.relu")
    with pytest.raises(InvalidOption, match="Identity"):
        op.add_type_rel("Reshape")
    op.set_num_inputs(1)
    op.add_type_rel("Nothing", lambda types, attrs: None)
    with pytest.raises(RelayTypeError, match="None from the type relation"):
        relay.testing.run_infer_type(relay.Call(op, [relay.var("x", shape=(1,))]))


def test_marks_of_devices() -> None:
    x = relay.var("x", shape=(3,))
    marked = relay.annotation.on_device(relay.exp(x), "cpu", constrain_result=True)
    assert marked.attrs.virtual_device.device_type_int == 1
    free = relay.annotation.on_device(x, tvm.cpu(), constrain_body=False)
    assert free.attrs.virtual_device.device_type_int == -1
    mod = relay.IRModule.from_expr(relay.Function([x], marked + relay.const(1.0)))
    for again in (relay.load_json(relay.save_json(mod)), relay.parse(mod.astext())):
        assert relay.structural_equal(again, mod)
    value = np.arange(3, dtype="float32")
    found = relay.create_executor("graph", mod=mod).evaluate()(value).numpy()
    np.testing.assert_allclose(found, np.exp(value.astype("float64")) + 1, rtol=1e-6)
    with pytest.raises(InvalidOption, match="bogus"):
        relay.annotation.on_device(x, "bogus")
