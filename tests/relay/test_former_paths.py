"""Names and arguments of TVM 0.5 to 0.17, as third parties' scripts use them."""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption, RemovedFromTvm
from convoy.relay import former_paths
from convoy.relay import tvm018 as tvm
from convoy.relay.prelude import Prelude


@pytest.mark.parametrize("package", ["convoy", "convoy.relay.tvm018"])
@pytest.mark.parametrize("former", former_paths.FORMER)
def test_modules_under_former_paths(package: str, former: str) -> None:
    found = importlib.import_module(f"{package}.{former}")
    assert found is importlib.import_module(f"convoy.{former_paths.FORMER[former]}")


def test_functions_keep_the_names_of_their_modules() -> None:
    """`relay.quantize.quantize` is a function and, when it is imported from, a module."""
    from convoy.relay.tvm018.relay.expr_functor import Call, ExprMutator
    from convoy.relay.tvm018.relay.op.nn.nn import Expr, dense
    from convoy.relay.tvm018.relay.quantize.quantize import _bind_params, quantize

    assert relay.quantize.quantize is quantize and relay.op.nn.nn.dense is dense
    assert callable(relay.analysis.count_layers) and issubclass(Call, Expr) and ExprMutator
    x = relay.var("x", shape=(2,))
    bound = _bind_params(relay.Function([x], relay.exp(x)), {"x": np.zeros(2, "float32")})
    assert not bound.params
    assert relay.contrib.adaptive_avg_pool2d is relay.nn.adaptive_avg_pool2d


def test_names_at_the_top_until_06() -> None:
    n = tvm.var("n")
    a = tvm.placeholder((n,), name="a")
    assert tvm.compute(a.shape, lambda i: a[i] + tvm.const(1, "float32")).name
    assert tvm.TVMContext is type(tvm.cpu(0)) and tvm.nd.context("llvm") == tvm.cpu(0)
    mod = relay.Module.from_expr(relay.exp(relay.var("x", shape=(2,))))
    assert relay.alpha_equal(tvm.load_json(tvm.save_json(mod)), mod)
    assert relay.Op is relay.op.Op is tvm.ir.Op and relay.Sequential is relay.transform.Sequential
    with tvm.target.create("llvm -device=arm_cpu") as target:
        assert tvm.target.current_target().device_name == target.device_name == "arm_cpu"
    assert (target.target_name, target.model, target.max_num_threads) == ("llvm", "unknown", 1)
    with pytest.raises(RemovedFromTvm, match=r"te\.create_prim_func"):
        tvm.create_schedule(None)


def test_passes_on_expressions_until_05() -> None:
    x = relay.var("x", shape=(3,))
    function = relay.ir_pass.infer_type(relay.Function([x], x + x * x))
    fused = relay.ir_pass.fuse_ops(function, opt_level=3)
    assert fused.body.op.attrs.Primitive.value == 1
    for name in ("canonicalize_ops", "simplify_inference", "dead_code_elimination", "to_anf"):
        value = relay.create_executor("vm").evaluate(getattr(relay.ir_pass, name)(function))
        np.testing.assert_array_equal(value(np.full(3, 2, "float32")).numpy(), 6)
    assert relay.ir_pass.graph_equal(function, function)


def test_sizes_in_attributes_have_values() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    call = relay.nn.conv2d(x, w, padding=1, channels=4, kernel_size=(3, 3))
    mod = relay.IRModule.from_expr(call)
    for made in (mod, relay.parse(mod.astext()), relay.load_json(relay.save_json(mod))):
        attrs = made["main"].body.attrs
        assert [size.value for size in attrs["kernel_size"]] == [3, 3]
        assert (attrs.strides[0].value, attrs.channels.value, attrs.padding) == (1, 4, [1] * 4)
    assert relay.nn.max_pool2d(x).attrs.pool_size[1].value == 1
    assert relay.pretty_print(call).startswith("free_var") and relay.pretty_print(1) == "1"


def test_attributes_of_operators_are_registered() -> None:
    relay.op.register("nn.relu", "target.former")(lambda expr: True)
    assert relay.op.get("nn.relu").get_attr("target.former")(None)
    with pytest.raises(InvalidOption, match="registered before"):
        relay.op.register("nn.relu", "what it does")


def test_resizing_and_scattering_until_011() -> None:
    x = relay.var("x", shape=(1, 1, 2, 2))
    image = np.arange(4, dtype="float32").reshape(1, 1, 2, 2)
    run = relay.create_executor("vm").evaluate
    for given, second in {
        ("NCHW", "bilinear", "align_corners"): [2 / 3, 1, 4 / 3, 5 / 3],
        ("NCHW", "BILINEAR", False): [1, 1.5, 2, 2],
        ("NCHW", "nearest_neighbor"): [0, 0, 1, 1],
    }.items():
        resized = relay.Function([x], relay.image.resize(x, (4, 4), *given))
        np.testing.assert_allclose(run(resized)(image).numpy()[0, 0, 1], second, 1e-6)
    zeros, ones = (relay.const(np.full(3, v, "float32")) for v in (0, 1))
    places = relay.const(np.array([2, 0, 2]))
    added = run(relay.scatter_add(zeros, places, ones, 0))
    np.testing.assert_array_equal(added.numpy(), [1, 0, 2])
    set_ = run(relay.scatter(zeros, places, ones, 0))
    np.testing.assert_array_equal(set_.numpy(), [1, 0, 1])


def test_a_prelude_until_07() -> None:
    prelude = Prelude()
    relay.testing.add_nat_definitions(prelude)
    relay.testing.add_nat_definitions(prelude)
    pair = prelude.cons(relay.const(1.0), prelude.cons(relay.const(2.0), prelude.nil()))
    x, y = relay.Var("x"), relay.Var("y")
    total = prelude.foldl(relay.Function([x, y], x + y), relay.const(0.0), pair)
    result = relay.create_executor("debug", mod=prelude.mod).evaluate(total)
    assert isinstance(result, relay.backend.interpreter.TensorValue) and result.numpy() == 3
    listed = relay.create_executor("debug", mod=prelude.mod).evaluate(pair)
    assert isinstance(listed, relay.backend.interpreter.TupleValue)
    assert listed.fields[0].numpy() == 1
    assert relay.vmobj.ADT is tvm.runtime.container.ADT
    names = [prelude.rose, prelude.some, prelude.none, prelude.s, prelude.z]
    assert [c.name_hint.lower() for c in names] == ["rose", "some", "none", "succ", "zero"]
    assert [str(t.name_hint) for t in (prelude.l, prelude.tree, prelude.nat)] == [
        "List", "Tree", "nat",
    ]  # fmt: skip


def test_a_machine_gets_its_device_apart() -> None:
    x = relay.var("x", shape=(2,))
    executable = relay.vm.compile(relay.IRModule.from_expr(relay.Function([x], x + x)), "llvm")
    machine = relay.vm.VirtualMachine(executable)
    machine.init(tvm.cpu(0))
    np.testing.assert_array_equal(machine.run(np.ones(2, "float32")).numpy(), 2)


def test_the_graph_as_scripts_read_it() -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    lib = relay.build(relay.Function([x, w], relay.nn.dense(x, w)), "llvm")
    graph = json.loads(lib["get_graph_json"]())
    shapes = {graph["nodes"][i]["name"]: graph["attrs"]["shape"][1][i] for i in graph["arg_nodes"]}
    assert shapes == {"x": [2, 3], "w": [4, 3]}
    assert graph["attrs"]["dltype"] == ["list_str", ["float32"] * 3]
    assert graph["heads"] == [[2, 0, 0]] and lib["get_graph_params"]() == {}
    debug = tvm.contrib.debugger.debug_executor.create(lib.graph_json, lib, tvm.cpu())
    debug.set_input(x=np.ones((2, 3), "float32"), w=np.ones((4, 3), "float32"))
    times = debug.run_individual(number=1)
    assert len(times) == len(graph["nodes"]) and times[:2] == [0, 0] and times[2] > 0
    for refused in (lambda: debug.debug_get_output("dense"), lambda: lib.save("net.o")):
        with pytest.raises(InvalidOption, match=r"extract_intermdeiate_expr|export_library"):
            refused()


def test_options_without_effect_are_taken() -> None:
    from convoy.relay.tvm018 import auto_scheduler
    from convoy.relay.tvm018.driver.tvmc.autotuner import tune_model
    from convoy.relay.tvm018.driver.tvmc.compiler import compile_model
    from convoy.relay.tvm018.driver.tvmc.frontends import load_model
    from convoy.relay.tvm018.driver.tvmc.model import TVMCModel
    from convoy.relay.tvm018.driver.tvmc.runner import run_module

    assert auto_scheduler.SketchPolicy(None, program_cost_model=auto_scheduler.XGBModel())
    assert relay.build_config(opt_level=3, add_pass={"FastMath"}).required_pass == ["FastMath"]
    tvm.transform.PassContext(config={"relay.ext.tensorrt.options": {"use_fp16": True}})
    assert tvm.target.Target("cuda -compiler=cutlass").kind.name == "cutlass"
    assert callable(tune_model) and callable(load_model) and tvm.rpc.LocalSession().gpu
    x = relay.var("x", shape=(1, 3))
    dense = relay.nn.dense(x, relay.const(np.full((4, 3), 1 + 2**-12, "float32")))
    package = compile_model(TVMCModel(tvm.IRModule.from_expr(dense)), "llvm", mixed_precision=True)
    inputs = {"x": np.ones((1, 3), "float32")}
    result = run_module(package, "cpu", inputs=inputs, repeat=1, number=1)
    np.testing.assert_array_equal(result.get_output("output_0"), 3)  # in half precision


def test_marks_of_tests() -> None:
    from convoy.relay.tvm018 import testing

    def test(target: Any, dev: Any) -> None: ...

    testing.utils.install_request_hook(depth=3)
    assert testing.uses_gpu(test) is test is testing.requires_llvm(test)
    assert testing.requires_micro(test).pytestmark[-1].args == (True,)  # is skipped
    pairs = testing.parametrize_targets("llvm")(test).pytestmark[-1].args[1]
    assert pairs == [("llvm", tvm.cpu(0))]


def test_nothing_is_an_instance_of_what_was_removed() -> None:
    assert not isinstance(relay.const(1), relay.SequentialSpan)
