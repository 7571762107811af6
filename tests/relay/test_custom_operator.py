"""Operators of users and marks of devices: typed, printed, saved; marks do not change values."""

from __future__ import annotations

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
