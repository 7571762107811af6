"""What passes return computes what the module computed, and has the form they promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay import transform
from convoy.relay import tvm018 as tvm
from convoy.relay.dataflow_pattern import is_op, wildcard
from convoy.relay.testing import TempOpAttr, run_opt_pass


def network() -> relay.Function:
    """Parallel convolutions, normalization, dense layers, casts, lets and constants."""
    x = relay.var("x", shape=(1, 4, 6, 6))
    shared = relay.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rng = np.random.default_rng(1)

    def const(*shape: int) -> relay.Constant:
        return relay.const(rng.standard_normal(shape), "float32")

    branches = []
    for channels in (2, 3, 4):
        y = relay.nn.conv2d(shared, const(channels, 4, 1, 1))
        branches.append(relay.nn.relu(relay.add(y, const(channels, 1, 1))))
    y = relay.concatenate(branches, axis=1)
    y = relay.nn.conv2d(relay.nn.pad(y, ((0, 0), (0, 0), (1, 0), (1, 2))), const(5, 9, 3, 3))
    mean, spread = relay.exp(const(5)), relay.exp(relay.add(const(5), const(5)))
    y = relay.nn.batch_norm(y, relay.const(np.ones(5)), const(5), mean, spread)[0]
    y = relay.nn.batch_flatten(relay.nn.dropout(relay.nn.bias_add(y, const(5))))
    wide = relay.cast(relay.cast(y, "float32"), "float64")
    wide = relay.cast(relay.add(wide, wide) / relay.const(3.0, "float64"), "float32")
    size = 5 * 7 * 9
    outs = [relay.add(relay.nn.dense(wide, const(3, size)), const(3)) for _ in range(3)]
    a, b = relay.var("a"), relay.var("b")
    total = relay.add(relay.add(outs[0], a), relay.tanh(relay.add(outs[1], outs[2])))
    body = relay.Let(a, relay.nn.relu(outs[1]), relay.Let(b, relay.exp(outs[0]), total))
    return relay.Function([x], body)


def run(mod: Any) -> np.ndarray:
    x = np.random.default_rng(2).standard_normal((1, 4, 6, 6)).astype("float32")
    target = tvm.IRModule.from_expr(mod) if isinstance(mod, relay.Function) else mod
    out: np.ndarray = relay.create_executor("vm", target, target="llvm").evaluate()(x).numpy()
    return out


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return run(network())


def names(expr: relay.Expr) -> list[str]:
    found: list[str] = []

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Call) and hasattr(node.op, "name"):
            found.append(node.op.name)

    relay.analysis.post_order_visit(expr, visit)
    return found


PASSES: dict[str, tuple[list[Callable[[], Any]], Callable[[list[str]], bool]]] = {
    "simplify and fold": (
        [transform.SimplifyInference, transform.FoldConstant],
        lambda n: not {"nn.batch_norm", "nn.dropout", "rsqrt", "sqrt"} & set(n),
    ),
    "common": ([transform.EliminateCommonSubexpr], lambda n: "nn.conv2d" in n),
    "dead": ([transform.DeadCodeElimination], lambda n: "exp" not in n[-6:]),
    "inline once": ([lambda: transform.DeadCodeElimination(inline_once=True)], bool),
    "combine": (
        [
            lambda: transform.CombineParallelConv2D(2),
            lambda: transform.CombineParallelDense(2),
        ],
        lambda n: n.count("nn.conv2d") == 2 and "nn.batch_matmul" in n and "nn.dense" not in n,
    ),
    "combine all": (
        [transform.BatchingOps],
        lambda n: n.count("nn.conv2d") == 2 and "nn.batch_matmul" in n,
    ),
    "combine flat": (
        [lambda: transform.CombineParallelDense(3, to_batch=False)],
        lambda n: n.count("nn.dense") == 1,
    ),
    "padding": ([transform.FoldExplicitPadding], lambda n: "nn.pad" not in n),
    "canonical": (
        [transform.CanonicalizeOps, transform.CanonicalizeCast, transform.DivToMul],
        lambda n: "nn.bias_add" not in n and "divide" not in n,
    ),
    "normal form": ([transform.ToANormalForm], bool),
    "basic blocks": ([transform.ToBasicBlockNormalForm], bool),
    "there and back": ([transform.ToANormalForm, transform.ToGraphNormalForm], bool),
    "all": (
        [
            transform.SimplifyInference,
            transform.ToGraphNormalForm,
            transform.CombineParallelConv2D,
            transform.FoldConstant,
            transform.FoldExplicitPadding,
            transform.EliminateCommonSubexpr,
            transform.CanonicalizeOps,
        ],
        lambda n: n.count("nn.conv2d") == 2,
    ),
}


@pytest.mark.parametrize("case", PASSES)
def test_passes_keep_the_result(case: str, expected: np.ndarray) -> None:
    makers, check = PASSES[case]
    mod = tvm.IRModule.from_expr(network())
    with tvm.transform.PassContext(opt_level=4):
        after = tvm.transform.Sequential([make() for make in makers])(mod)
    assert check(names(after["main"]))
    np.testing.assert_allclose(run(after), expected, rtol=2e-5, atol=2e-5)


def test_normal_form_binds_each_value() -> None:
    x = relay.var("x", shape=(2,))
    y = relay.add(x, x)
    cond = relay.less(relay.sum(y), relay.const(1.0))
    body = relay.If(cond, relay.multiply(y, y), relay.negative(y))
    function = run_opt_pass(relay.Function([x], body), transform.ToANormalForm())
    for node in [function.body, function.body.body]:
        assert isinstance(node, relay.Let)
    for args in (np.zeros(2, "f"), np.ones(2, "f")):
        evaluate = relay.create_executor("vm").evaluate
        before, after = (evaluate(f)(args) for f in (relay.Function([x], body), function))
        np.testing.assert_array_equal(before.numpy(), after.numpy())


def test_a_long_chain_needs_no_stack() -> None:
    x = relay.var("x", shape=(2,))
    y: relay.Expr = x
    for i in range(5000):
        y = relay.add(y, relay.const(float(i % 3)))
    for make in (transform.ToANormalForm, transform.FoldConstant, transform.ToGraphNormalForm):
        assert run_opt_pass(relay.Function([x], y), make()) is not None


def test_folding_a_constant_if_and_a_let() -> None:
    x, c = relay.var("x", shape=(2,)), relay.var("c")
    cond = relay.less(relay.const(1.0), relay.const(2.0))
    body = relay.Let(c, relay.const([1.0, 2.0]) * relay.const(3.0), relay.If(cond, x + c, x))
    folded = run_opt_pass(relay.Function([x], body), transform.FoldConstant())
    assert names(folded) == ["add"]
    np.testing.assert_array_equal(folded.body.args[1].value, [3, 6])


def test_folding_compiles_what_numpy_does_not_do() -> None:
    data = np.random.default_rng(3).standard_normal((1, 2, 5, 5)).astype("float32")
    w = np.ones((3, 2, 3, 3), "float32")
    x = relay.var("x", shape=(1, 3, 3, 3))
    conv = relay.nn.conv2d(relay.const(data), relay.const(w))
    folded = run_opt_pass(relay.Function([x], x + conv), transform.FoldConstant())
    assert names(folded) == ["add"]
    assert folded.body.args[1].value.shape == (1, 3, 3, 3)
    total = data[:, :, :3, :3].sum()
    np.testing.assert_allclose(folded.body.args[1].value[0, 0, 0, 0], total, rtol=1e-5)


def test_legalize_with_a_function_of_the_user() -> None:
    def as_square(attrs: Any, inputs: Any, types: Any) -> relay.Expr:
        assert types[0].shape == (2,)
        return relay.multiply(inputs[0], inputs[0])

    x = relay.var("x", shape=(2,))
    with TempOpAttr("nn.relu", "FTVMLegalize", as_square):
        out = run_opt_pass(relay.Function([x], relay.nn.relu(x)), transform.Legalize())
    assert names(out) == ["multiply"]
    again = run_opt_pass(relay.Function([x], relay.nn.relu(x)), transform.Legalize())
    assert names(again) == ["nn.relu"]


def test_inline_and_lift() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    mod = relay.IRModule()
    mod["double"] = relay.Function([y], y + y).with_attr("Inline", tvm.tir.IntImm("int32", 1))
    double = mod.get_global_var("double")
    mod["main"] = relay.Function([x], relay.Call(double, [relay.Call(double, [x])]))
    inlined = transform.Inline()(mod)
    assert list(inlined) == ["main"]
    assert names(inlined["main"]) == ["add", "add"]
    inner = relay.Function([y], y + x)
    lifted = transform.LambdaLift()(
        relay.IRModule.from_expr(relay.Function([x], relay.Call(inner, [x])))
    )
    assert len(lifted) == 2


def test_batch_and_arguments() -> None:
    mod, _ = relay.testing.synthetic.get_workload()
    changed = transform.ChangeBatch({"data": 0}, batch_size=7)(mod)
    assert changed["main"].checked_type.ret_type.shape[0] == 7


def test_optimize_asks_the_context() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    assert names(relay.optimize(mod, "llvm")[0]["main"]) == ["exp"]
    with tvm.transform.PassContext(opt_level=3, required_pass=["FastMath"]):
        assert names(relay.optimize(mod, "llvm")[0]["main"]) == ["fast_exp"]


def test_fuse_and_defuse(expected: np.ndarray) -> None:
    mod = tvm.IRModule.from_expr(network())
    mod = transform.ToGraphNormalForm()(transform.SimplifyInference()(mod))
    fused = transform.FuseOps(2)(mod)
    functions: list[relay.Function] = []

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Function) and node.attrs.get("Primitive"):
            functions.append(node)

    relay.analysis.post_order_visit(fused["main"], visit)
    groups = [names(f) for f in functions]
    assert ["nn.conv2d", "add", "nn.relu"] in groups
    assert all(sum(n in ("nn.conv2d", "nn.dense") for n in group) <= 1 for group in groups)
    np.testing.assert_allclose(run(fused), expected, rtol=2e-5, atol=2e-5)
    again = transform.DefuseOps()(fused)
    assert sorted(names(again["main"])) == sorted(names(mod["main"]))
    single = transform.FuseOps(0)(mod)
    functions.clear()
    relay.analysis.post_order_visit(single["main"], visit)
    assert all(len(names(f)) == 1 for f in functions)


def test_inference_remembers_a_type_that_a_pass_took_away() -> None:
    x, w = relay.var("x", shape=(1, 4, 5, 5)), relay.var("w")
    body = relay.nn.relu(relay.nn.conv2d(x, w, channels=3, kernel_size=(3, 3)))
    fused = run_opt_pass(relay.Function([x, w], body), transform.FuseOps(2))
    assert fused.params[1].checked_type == relay.TensorType((3, 4, 3, 3))


def test_simplified_expressions() -> None:
    x = relay.var("x", shape=(2, 3, 4))
    n = relay.var("n", shape=(4,), dtype="int32")
    root = relay.sqrt(relay.exp(x))
    two, three = relay.const(np.full(4, 2, "float32")), relay.const(3.0)
    i, change = relay.var("i", shape=(1, 2, 3, 8)), relay.layout_transform
    nchw = relay.transpose(i, [0, 3, 1, 2])
    cases: list[tuple[relay.Var, relay.Expr, list[str]]] = [
        (x, relay.reshape(relay.reshape(x, (6, 4)), (4, 6)), ["reshape"]),
        (x, relay.nn.relu(relay.reshape(relay.reshape(x, (6, 4)), (2, 3, 4))), ["nn.relu"]),
        (x, relay.transpose(relay.transpose(x, [2, 0, 1]), [1, -1, 0]), []),
        (x, relay.transpose(relay.transpose(x), [1, 0, 2]), ["transpose"]),
        (x, relay.cast(relay.cast(x, "float64"), "float32"), []),
        (x, relay.cast(relay.cast(x, "float16"), "float32"), ["cast", "cast"]),
        (n, relay.cast(relay.cast(n, "uint8"), "int32"), ["cast", "cast"]),
        (n, relay.cast(relay.cast(relay.clip(n, 0, 255), "uint8"), "int32"), ["clip"]),
        (
            n,
            relay.cast(relay.cast(relay.clip(n, 0, 300), "uint8"), "int32"),
            ["clip"] + ["cast"] * 2,
        ),
        (x, relay.nn.relu(relay.zeros_like(x) + x), ["nn.relu"]),
        (x, relay.const(0.0) - x * relay.ones((2, 3, 4), "float32"), ["subtract"]),
        (x, relay.const(1.0) / root, ["exp", "rsqrt"]),
        (x, relay.const(3.0) / root, ["exp", "rsqrt", "multiply"]),
        (x, x + relay.zeros((2, 2, 3, 4), "float32"), ["zeros", "add"]),
        (x, (x * two + three) * two, ["multiply", "add"]),
        (x, three + two * (three + x), ["multiply", "add"]),
        (i, change(change(nchw, "NCHW", "NCHW4c"), "NCHW4c", "NHWC"), []),
        (i, change(change(i, "NHWC", "NCHW4c"), "NCHW4c", "NCHW"), ["layout_transform"]),
        (
            i,
            relay.transpose(change(change(i, "NHWC", "NCHW4c"), "NCHW4c", "NCHW"), [2, 0, 3, 1]),
            ["transpose"],
        ),
        (i, change(change(i, "NHWC", "NCHW4c"), "NCHW4c", "NCHW2c"), ["layout_transform"]),
    ]
    rng = np.random.default_rng(5)
    values = {
        x: rng.standard_normal((2, 3, 4)).astype("float32"),
        n: np.array([-300, -1, 200, 400], "int32"),
        i: rng.standard_normal((1, 2, 3, 8)).astype("float32"),
    }
    evaluate = relay.create_executor("vm").evaluate
    for var, body, expected in cases:
        before = relay.Function([var], body)
        after = run_opt_pass(before, transform.SimplifyExpr())
        assert names(after) == expected, after
        results = [evaluate(f)(values[var]).numpy() for f in (before, after)]
        np.testing.assert_allclose(*results, rtol=1e-5)


def test_many_tensors_are_joined_in_steps() -> None:
    parts = [relay.var(f"x{i}", shape=(1, 2)) for i in range(11)]
    function = relay.Function(parts, relay.concatenate(parts, axis=0))
    split = run_opt_pass(function, transform.SplitArgs(5))
    assert names(split).count("concatenate") == 4
    assert split.ret_type == relay.TensorType((11, 2))
    values = [np.full((1, 2), i, "float32") for i in range(11)]
    out = relay.create_executor("graph").evaluate(split)(*values).numpy()
    np.testing.assert_array_equal(out, np.concatenate(values))
    whole = run_opt_pass(function, transform.SplitArgs(0))
    assert names(whole) == ["concatenate"]


def test_a_clip_to_the_whole_range_of_a_dtype_is_dropped() -> None:
    x = relay.var("x", shape=(4,), dtype="int32")
    numbers = [relay.const(v) for v in (1.0, 0, 1.0, 0)]
    rounded = relay.qnn.op.requantize(x, *numbers, out_dtype="int8")
    for low, dropped in ((-128, True), (-127, False)):
        function = relay.Function([x], relay.clip(rounded, low, 127))
        found = run_opt_pass(function, relay.transform.Legalize())
        assert (found.body.op.name == "qnn.requantize") == dropped


def test_a_quantized_operator_is_legalized_by_its_own_key() -> None:
    x = relay.var("x", shape=(4,))
    call = relay.qnn.op.quantize(x, relay.const(0.5), relay.const(0))
    replace = lambda attrs, args, types: relay.cast(args[0], "int8")  # noqa: E731
    with relay.testing.temp_op_attr.TempOpAttr("qnn.quantize", "FTVMQnnLegalize", replace):
        kept = run_opt_pass(call, relay.transform.Legalize())
        changed = run_opt_pass(call, relay.qnn.transform.Legalize())
    assert (kept.op.name, changed.op.name) == ("qnn.quantize", "cast")


def test_computed_shapes_of_constants_are_folded() -> None:
    shape = relay.multiply(relay.const(np.array([2, 3], "int32")), relay.const(1, "int32"))
    zeros = run_opt_pass(relay.zeros(shape, "float32"), relay.transform.DynamicToStatic())
    assert zeros.checked_type == relay.TensorType((2, 3), "float32")
    size = relay.const(np.array([4, 6], "float32"))  # as importers compute them
    image = relay.var("image", shape=(1, 1, 2, 3))
    larger = run_opt_pass(relay.image.resize2d(image, size), relay.transform.DynamicToStatic())
    assert larger.checked_type == relay.TensorType((1, 1, 4, 6), "float32")
    values = relay.reshape(relay.const(np.arange(6, dtype="float32")), shape)
    folded = run_opt_pass(values, relay.transform.FoldConstant())
    np.testing.assert_array_equal(folded.data.numpy(), np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    "shapes", [((), ()), ((1,), (6,)), ((4, 1), (4, 1)), ((2, 4, 3), (2, 4, 6))]
)
def test_dense_layers_are_combined_with_their_biases(shapes: tuple[Any, Any]) -> None:
    """One number for all units is repeated; a bias of more axes gives results of more."""
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(4, 5))
    parts = []
    for units, shape in zip((3, 6), shapes, strict=True):
        weight, bias = (rng.standard_normal(s).astype("float32") for s in ((units, 5), shape))
        parts.append(relay.add(relay.nn.dense(x, relay.const(weight)), relay.const(bias)))
    function = relay.Function([x], relay.Tuple(parts))
    combined = run_opt_pass(function, transform.CombineParallelDense(2, to_batch=False))
    assert names(combined).count("nn.dense") == names(combined).count("add") == 1
    value = rng.standard_normal((4, 5)).astype("float32")
    got, want = (relay.create_executor("graph").evaluate(f)(value) for f in (combined, function))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, 1e-5)


def test_fused_functions_are_listed_once() -> None:
    y = relay.var("x", shape=(1, 4, 6, 6))
    for i in range(3):
        y = relay.nn.relu(relay.nn.conv2d(y, relay.var(f"w{i}", shape=(4, 4, 1, 1))))
    found = relay.analysis.extract_fused_functions(tvm.IRModule.from_expr(y))
    assert [names(f.body) for f in found.values()] == [["nn.conv2d", "nn.relu"]]


def test_branches_with_local_weights_are_not_combined() -> None:
    """Where the first one is computed, a let has not bound the weight of the second one."""
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(2, 3), float32], %a: Tensor[(4, 3), float32],
              %b: Tensor[(4, 3), float32], %c: Tensor[(4, 3), float32]) {
      let %v = tanh(%a);
      let %f = nn.dense(%x, %v, units=4);
      let %w = tanh(%b);
      let %g = nn.dense(%x, %w, units=4);
      let %h = nn.dense(%x, %c, units=4);
      let %i = nn.dense(%x, %b, units=4);
      (%f, %g, %h, %i)
    }"""
    mod = relay.parse(text)
    combined = transform.CombineParallelDense(2, to_batch=False)(mod)
    assert names(combined["main"]).count("nn.dense") == 3  # %h and %i are one
    x, *weights = (np.random.default_rng(4).standard_normal(s) for s in ((2, 3), *[(4, 3)] * 3))
    args = [value.astype("float32") for value in (x, *weights)]
    got = relay.create_executor("graph", combined).evaluate()(*args)
    a, b, c = weights
    for found, weight in zip(got, (np.tanh(a), np.tanh(b), c, b), strict=True):
        np.testing.assert_allclose(found.numpy(), x @ weight.T, 1e-5, 1e-5)


def test_dead_code_of_a_variable_that_is_another_one() -> None:
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(2), float32]) {
      let %a = negative(%x);
      let %b = %a;
      %b
    }"""
    plain = transform.DeadCodeElimination(inline_once=True)(relay.parse(text))
    assert relay.structural_equal(plain["main"].body, relay.negative(plain["main"].params[0]))


@pytest.mark.parametrize("listed", [False, True])
def test_passes_that_infer_types_know_the_module(listed: bool) -> None:
    """Between their steps as well, of functions that call others and of data types."""
    mod = relay.IRModule()
    prelude = relay.prelude.Prelude(mod)
    _, cons, nil = mod.get_type("List")
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    callee = relay.GlobalVar("callee")
    mod[callee] = relay.Function([y], relay.tanh(y), relay.TensorType((2,)))
    value = relay.reshape(callee(x), relay.const([2]))
    if listed:
        value = prelude.hd(cons(value, nil()))
    mod["main"] = relay.Function([x], relay.nn.relu(relay.add(value, x)))
    relu = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
    static = transform.DynamicToStatic()(mod)
    merged = transform.MergeComposite([("ext.relu", relu)])(static)
    assert "Composite" in merged["main"].astext() and "dyn." not in static["main"].astext()
    given = np.array([-1, 2], "float32")
    got = relay.create_executor("vm", merged).evaluate()(given).numpy()
    np.testing.assert_allclose(got, np.maximum(np.tanh(given) + given, 0), 1e-5, 1e-5)


def test_data_types_in_a_normal_form_and_regions() -> None:
    """A constructor is no value to bind, and an empty list is known by what holds it."""
    mod = relay.IRModule()
    prelude = relay.prelude.Prelude(mod)
    _, cons, nil = mod.get_type("List")
    x = relay.var("x", shape=(2,))
    mod["main"] = relay.Function([x], relay.tanh(prelude.hd(cons(relay.negative(x), nil()))))
    normal = relay.parse(transform.ToANormalForm()(mod).astext())
    with TempOpAttr("tanh", "target.ext", lambda call: True):
        annotated = transform.AnnotateTarget("ext")(normal)
        parted = transform.PartitionGraph()(transform.MergeCompilerRegions()(annotated))
    assert [f for f in parted.functions.values() if "Compiler" in f.attrs]
    given = np.array([-1, 2], "float32")
    got = relay.create_executor("vm", parted).evaluate()(given).numpy()
    np.testing.assert_allclose(got, np.tanh(-given), 1e-5, 1e-5)
