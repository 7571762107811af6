"""Questions about networks and small programs, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption, RelayTypeError
from convoy.relay import analysis
from convoy.relay.analysis import Feature


def x_var(*shape: int) -> relay.Var:
    return relay.var("x", shape=shape)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        # 1 x 8 x 5 x 5 outputs of 3 x 3 x 4 each
        (lambda: relay.nn.conv2d(x_var(1, 4, 5, 5), relay.var("w", shape=(8, 4, 3, 3)),
                                 padding=(1, 1)), 200 * 36),
        (lambda: relay.nn.conv2d(x_var(1, 5, 5, 4), relay.var("w", shape=(3, 3, 2, 8)), channels=8,
                                 kernel_size=(3, 3), padding=(1, 1), groups=2, data_layout="NHWC",
                                 kernel_layout="HWIO"), 200 * 18),
        (lambda: relay.nn.conv1d(x_var(2, 3, 10), relay.var("w", shape=(6, 3, 5))), 2 * 6 * 6 * 15),
        (lambda: relay.nn.dense(x_var(7, 3), relay.var("w", shape=(5, 3))), 105),
        (lambda: relay.nn.batch_matmul(x_var(2, 7, 3), relay.var("w", shape=(2, 5, 3))), 210),
        (lambda: relay.nn.matmul(x_var(3, 7), relay.var("w", shape=(3, 5)), transpose_a=True), 105),
        (lambda: relay.nn.relu(x_var(7, 3)), 0),
    ],
)  # fmt: skip
def test_multiply_accumulates(call, expected: int) -> None:
    assert analysis.get_total_mac_number(call()) == expected


def test_counts_of_a_network() -> None:
    mod, _ = relay.testing.squeezenet.get_workload(image_shape=(3, 64, 64))
    found = analysis.list_op_freqs(mod)
    assert found["nn.conv2d"] == 26
    assert found["concatenate"] == 8
    # a fire module is two convolutions deep: squeeze, then expand
    assert analysis.count_layers(mod, ["nn.conv2d"]) == 18


def test_fake_quantized_operators_have_integers_on_all_sides() -> None:
    scale, zero = relay.const(0.5), relay.const(0)
    data = relay.var("x", shape=(2, 3), dtype="int8")
    real = relay.qnn.op.dequantize(data, scale, zero)
    added = relay.add(relay.nn.relu(real), relay.nn.relu(real))
    quantized = relay.qnn.op.quantize(added, scale, zero, out_dtype="int8")
    mod = relay.IRModule.from_expr(relay.Function([data], relay.tanh(quantized)))
    assert analysis.list_fake_quantized_op_freqs(mod) == {"add": 1, "nn.relu": 2}
    half = relay.qnn.op.quantize(relay.add(real, x_var(2, 3)), scale, zero)
    assert analysis.list_fake_quantized_op_freqs(relay.IRModule.from_expr(half)) == {}


def test_variables_in_order() -> None:
    x, y, z = (relay.var(n, shape=(2,)) for n in "xyz")
    let = relay.Let(y, relay.nn.relu(x), relay.add(y, z))
    function = relay.Function([z], let)
    assert analysis.all_vars(function) == [z, y, x]
    assert analysis.bound_vars(function) == [z, y]
    assert analysis.free_vars(function) == [x]


def test_type_variables() -> None:
    a, b = relay.TypeVar("a"), relay.TypeVar("b")
    x = relay.var("x", relay.TupleType([a, b]))
    function = relay.Function([x], relay.TupleGetItem(x, 0), type_params=[a])
    assert analysis.all_type_vars(function) == [a, b]
    assert analysis.bound_type_vars(function) == [a]
    assert analysis.free_type_vars(function) == [b]


def test_well_formed() -> None:
    x, y = x_var(2), relay.var("y")
    inner = relay.Let(y, x, relay.nn.relu(y))
    assert analysis.well_formed(relay.Function([x], inner))
    assert not analysis.well_formed(relay.Function([x], relay.Let(x, inner, x)))
    assert not analysis.well_formed(relay.Tuple([inner, y]))
    loop = relay.var("loop")
    again = relay.Let(loop, relay.Function([x], loop(x)), loop(relay.const(1.0)))
    assert analysis.well_formed(again)


def test_basic_block_normal_form() -> None:
    x = x_var()
    shared = relay.exp(x)
    two = relay.If(relay.less(x, relay.const(0.0)), shared, relay.negative(shared))
    with pytest.raises(RelayTypeError, match="a branch or function"):
        analysis.check_basic_block_normal_form(relay.Function([x], two))
    name = relay.var("v")
    bound = relay.Let(
        name, shared, relay.If(relay.less(x, relay.const(0.0)), name, relay.negative(name))
    )
    assert analysis.check_basic_block_normal_form(relay.Function([x], bound))


def test_features() -> None:
    x = x_var(2)
    relu = relay.nn.relu(x)
    found = analysis.detect_feature(relay.Function([x], relay.add(relu, relu)))
    assert found == {Feature.fVar, Feature.fFunction, Feature.fOp, Feature.fCall, Feature.fGraph}


def test_an_intermediate_value_as_a_module() -> None:
    x = x_var(2, 3)
    halves = relay.split(relay.nn.relu(x), 3, axis=1)
    mod = relay.IRModule.from_expr(relay.Function([x], relay.add(halves[0], halves[2])))
    taken = analysis.extract_intermdeiate_expr(mod, 3)
    assert isinstance(taken["main"].body, relay.TupleGetItem)
    assert taken["main"].body.index == 2
    with pytest.raises(InvalidOption, match="0 to 4"):
        analysis.extract_intermdeiate_expr(mod, 5)


def test_calibration_data_of_partitions() -> None:
    mod = relay.IRModule()
    a, b = relay.var("a", shape=(4,)), relay.var("b", shape=(4,))
    part = relay.Function([a, b], relay.Tuple([relay.add(a, b), relay.nn.relu(a)]))
    mod["part"] = part.with_attr("Compiler", "npu")
    x, y = x_var(4), relay.var("y", shape=(4,))
    call = mod.get_global_var("part")(relay.negative(x), y)
    mod["main"] = relay.Function([x, y], relay.multiply(call_field(call, 0), call_field(call, 1)))
    values = {"x": np.float32([1, -2, 3, -4]), "y": np.float32([1, 1, 2, 2])}
    ((_, found),) = analysis.get_calibration_data(mod, values).items()
    assert [v.numpy().tolist() for v in found["inputs"]] == [[-1, 2, -3, 4], [1, 1, 2, 2]]
    assert [v.numpy().tolist() for v in found["outputs"]] == [[0, 3, -1, 6], [0, 2, 0, 4]]


def call_field(call: relay.Call, index: int) -> relay.TupleGetItem:
    return relay.TupleGetItem(call, index)


def test_transposed_weights_of_dense_layers() -> None:
    weight = relay.var("w", shape=(3, 5))
    assert analysis.search_fc_transpose(
        relay.nn.dense(x_var(2, 3), relay.transpose(weight, (1, 0)))
    ) == ["w"]
