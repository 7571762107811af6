"""Values and types that scripts of TVM 0.18 rely on."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import CorruptArtefact, InvalidOption, RelaySyntaxError
from convoy.relay import tvm018 as tvm


def run(params: list[relay.Var], body: relay.Expr, *args: Any, kind: str = "graph") -> Any:
    return relay.create_executor(kind).evaluate(relay.Function(params, body))(*args).numpy()


@pytest.mark.parametrize("value", [np.float64(0.3), np.array([0.5, 1.5]), 1 / np.sqrt(7)])
def test_a_constant_of_doubles_is_float32(value: Any) -> None:
    x = relay.var("x", shape=(2,))
    product = relay.testing.run_infer_type(relay.multiply(x, relay.const(value)))
    assert product.checked_type == relay.TensorType((2,), "float32")


def test_a_constant_of_a_tensor() -> None:
    x = relay.var("x", shape=(3,))
    constant = relay.Constant(tvm.nd.array(np.arange(3, dtype="float32")))
    np.testing.assert_array_equal(run([x], x + constant, np.ones(3, "float32")), [1, 2, 3])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_round_takes_halves_away_from_zero(dtype: str) -> None:
    values = np.concatenate([np.arange(-9, 10) / 2, [0.49999997, -0.49999997, 8388609, 1e30]])
    values = values.astype(dtype)
    x = relay.var("x", shape=values.shape, dtype=dtype)
    whole = np.trunc(values)
    expected = whole + np.sign(values) * (np.abs(values - whole) >= 0.5)
    np.testing.assert_array_equal(run([x], relay.round(x), values), expected)


@pytest.mark.parametrize(("old", "new"), [(5, 25), (7, 4), (3, 5)])
def test_nearest_with_aligned_corners_rounds_up(old: int, new: int) -> None:
    x = np.arange(old, dtype="float32").reshape(1, 1, old)
    v = relay.var("x", shape=x.shape)
    out = relay.image.resize1d(v, (new,), None, "NCW", "nearest_neighbor", "align_corners")
    at = np.arange(new, dtype="float32") * np.float32((old - 1) / (new - 1))
    np.testing.assert_array_equal(run([v], out, x).ravel(), np.floor(at + np.float32(0.5)))


def test_a_branch_on_reduced_bools() -> None:
    x, y = relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    a, b = np.arange(4, dtype="float32"), np.array([0, 1, 2, 4], "float32")
    for reduce, expected in ((relay.min, b), (relay.max, a)):
        body = relay.If(reduce(relay.equal(x, y), axis=[0]), x, y)
        np.testing.assert_array_equal(run([x, y], body, a, b, kind="vm"), expected)


def test_infer_type_writes_the_result_type() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.relu(x)))
    assert mod["main"].ret_type == relay.TensorType((2, 3))


@pytest.mark.parametrize("literal", ["3.40283e+38f32", "65505f16", "-1e39f", "1e400f64"])
def test_literals_that_do_not_fit(literal: str) -> None:
    with pytest.raises(RelaySyntaxError, match="does not fit float"):
        relay.parse_expr(literal)
    assert np.isinf(relay.parse_expr("inff").value)


def test_the_empty_tuple_is_one_value() -> None:
    unit = relay.Tuple([])
    assert relay.structural_equal(
        relay.Tuple([unit, unit]), relay.Tuple([relay.Tuple([]), relay.Tuple([])])
    )
    x = relay.var("x", shape=(2,))
    one, other = relay.Tuple([x]), relay.Tuple([x])
    assert not relay.structural_equal(relay.Tuple([one, one]), relay.Tuple([one, other]))


def test_uint1_is_bool() -> None:
    c, x = relay.var("c", shape=(), dtype="uint1"), relay.var("x", shape=(2,))
    out = relay.testing.run_infer_type(relay.If(c, x, x))
    assert out.checked_type == relay.TensorType((2,))


def test_values_for_free_variables() -> None:
    x = relay.var("x")
    out = relay.create_executor().evaluate(relay.add(x, x), binds={x: np.ones((2, 2), "float32")})
    np.testing.assert_array_equal(out.numpy(), np.full((2, 2), 2))


def relu() -> Any:
    return tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(3,))))


@pytest.mark.parametrize(
    "target", ["llvm -mtriple=sparc64-linux-gnu", {"kind": "llvm", "mtriple": "sparc64-unknown"}]
)
def test_code_for_another_machine_is_refused(target: Any) -> None:
    with pytest.raises(InvalidOption, match="sparc64"):
        relay.build(relu(), target)


def test_a_library_in_a_tar(tmp_path: Path) -> None:
    path = str(tmp_path / "net.tar")
    relay.build(relu(), "llvm").export_library(path)
    assert tarfile.is_tarfile(path)
    for load in (relay.load_module, tvm.runtime.load_module):
        module = tvm.contrib.graph_executor.GraphModule(load(path)["default"](tvm.cpu(0)))
        module.run(x=np.array([-1, 0, 2], "float32"))
        np.testing.assert_array_equal(module.get_output(0).asnumpy(), [0, 0, 2])
        assert module.module.time_evaluator("run", tvm.cpu(0), number=1, repeat=2)().mean > 0
    (tmp_path / "bad.tar").write_bytes(b"no tar")
    with pytest.raises(CorruptArtefact, match="no tar"):
        relay.load_module(tmp_path / "bad.tar")


def test_inputs_of_a_virtual_machine() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x, y], x - y))
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    one, two = np.ones(2, "float32"), np.full(2, 2, "float32")
    machine.set_one_input("main", 0, one)
    machine.set_one_input("main", "y", two)
    assert [machine.get_input_index(n) for n in ("x", "y", "z")] == [0, 1, -1]
    machine.invoke_stateful("main")
    np.testing.assert_array_equal(machine.get_outputs()[0].numpy(), -1)
    out = tvm.nd.empty((2,))
    machine.invoke_with_outputs("main", {"x": two, "y": one}, [out])
    np.testing.assert_array_equal(out.numpy(), 1)
    timing = machine.benchmark(tvm.cpu(), one, two, repeat=1, number=1, end_to_end=True)
    assert timing.mean > 0
    with pytest.raises(InvalidOption, match="tensors"):
        machine.invoke_with_outputs("main", {"x": two, "y": one}, [])


def test_an_executable_saved_and_made_again(tmp_path: Path) -> None:
    exe = relay.vm.compile(relu(), "llvm")
    again = tvm.runtime.vm.Executable.load_exec(*exe.save())
    out = tvm.runtime.vm.VirtualMachine(again, tvm.cpu()).run(np.array([-1, 0, 2], "float32"))
    np.testing.assert_array_equal(out.numpy(), [0, 0, 2])
    exe.mod.export_library(tmp_path / "vm.so")
    assert (tmp_path / "vm.so").stat().st_size > 0


def test_a_constant_of_a_tensor_type() -> None:
    assert relay.const(0, relay.scalar_type("int64")).tensor_type.dtype == "int64"


def test_several_results_are_joined_one_by_one() -> None:
    parts = relay.split(relay.var("x", shape=(4, 2)), 2)
    for joined in (relay.concatenate(parts, 0), relay.concatenate(iter(parts), 0)):
        fields = joined.args[0]
        assert isinstance(fields, relay.Tuple)
        assert [f.index for f in fields] == [0, 1]
    assert isinstance(relay.concatenate(parts.astuple(), 0).args[0], relay.Call)


def test_passes_keep_the_data_types_of_a_module() -> None:
    mod = relay.IRModule()
    prelude = relay.prelude.Prelude(mod)
    mod["main"] = relay.Function([], prelude.hd(prelude.mod.get_type("List")[1]()))
    smaller = relay.transform.RemoveUnusedFunctions()(mod)
    assert "map" not in smaller
    assert smaller.get_type("List")


def test_a_range_with_a_computed_end_has_a_text() -> None:
    n = relay.var("n", shape=(), dtype="int64")
    numbers = relay.arange(relay.const(1, "int64"), n, dtype="int64")
    module = relay.parse(tvm.IRModule.from_expr(relay.Function([n], numbers)).astext())
    assert relay.structural_equal(tvm.ir.load_json(tvm.ir.save_json(module)), module)
    result = relay.create_executor("vm", mod=module).evaluate()(np.int64(4))
    assert result.numpy().tolist() == [1, 2, 3]


def test_functions_with_tensors_among_their_attributes_compare_by_value() -> None:
    x = relay.var("x", shape=(2,))
    function, same, other = (
        relay.Function([x], x).with_attr("__params__", {"x": relay.const([1.0, last])})
        for last in (2.0, 2.0, 3.0)
    )
    assert relay.structural_equal(function, same)
    assert tvm.ir.structural_hash(function) == tvm.ir.structural_hash(same)
    assert not relay.structural_equal(function, other)


def test_copies_with_other_fields() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    call = relay.nn.relu(x)
    assert relay.expr.CallWithFields(call) is call
    assert relay.expr.CallWithFields(call, args=[x], span=None).args == [x]
    copy = relay.expr.CallWithFields(call, None, [y], span=relay.Span("net.py", 3))
    assert (copy.op, list(copy.args), copy.span.line) == (call.op, [y], 3)
    renamed = relay.expr.VarWithFields(x, vid=y)
    assert (renamed.name_hint, renamed.type_annotation) == ("y", x.type_annotation)
    function = relay.function.FunctionWithFields(relay.Function([x], call), [y], copy)
    assert list(function.params) == [y] and function.body is copy
    with pytest.raises(InvalidOption, match="on_device"):
        relay.expr.CallWithFields(call, virtual_device=tvm.cpu())


def test_attributes_by_kind() -> None:
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(6, 4, 3, 3))
    attrs = relay.nn.conv2d(x, w, strides=(2, 1), groups=1).attrs
    assert attrs.get_int_tuple("strides") == (2, 1)
    assert (attrs.get_int("groups"), attrs.get_str("data_layout")) == (1, "NCHW")
