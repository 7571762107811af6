"""The namespace of TVM 0.18: scripts whose import lines alone were changed."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convoy
from convoy import relay
from convoy.errors import InvalidOption, RemovedFromTvm, UnsupportedOp
from convoy.relay import tvm018 as tvm
from convoy.relay.build import device_target


def test_a_script(tmp_path: Path) -> None:
    x = relay.var("x", shape=(2, 3))
    w = relay.var("w", shape=(4, 3))
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w)))
    seq = tvm.transform.Sequential([relay.transform.InferType(), relay.transform.FoldConstant()])
    mod = seq(mod)
    params = {"w": tvm.nd.array(np.ones((4, 3), "float32"))}
    target, host = tvm.target.Target("llvm"), tvm.target.Target("llvm")
    cutlass = tvm.target.Target({"kind": "cutlass", "sm": 80}, host=host)
    with (
        pytest.warns(UserWarning, match="relay.FuseOps.max_depth"),
        tvm.transform.PassContext(opt_level=3, config={"relay.FuseOps.max_depth": 5}),
    ):
        lib = relay.build(mod, target=[target, cutlass], params=params)
    path = str(tmp_path / "net.so")
    lib.export_library(path)
    device = tvm.cpu(0)
    module = tvm.contrib.graph_executor.GraphModule(
        tvm.runtime.load_module(path)["default"](device)
    )
    module.set_input("x", tvm.nd.array(np.ones((2, 3), "float32"), device))
    module.run()
    out = tvm.nd.empty((2, 4), device=device)
    assert isinstance(module.get_output(0, out), tvm.nd.NDArray)
    np.testing.assert_array_equal(out.numpy(), 3)
    again = tvm.ir.load_json(tvm.ir.save_json(mod))
    assert tvm.ir.structural_equal(again, mod)
    assert tvm.ir.structural_equal(tvm.parser.fromtext(mod.astext()), mod)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("cuda -libs=cudnn,cublas", "cuda"),
        ("llvm -mcpu=core-avx2", "llvm"),
        ("llvm", "llvm"),
        ({"kind": "cuda", "arch": "sm_90"}, "cuda"),
        (["cuda", "cutlass"], "cuda"),
    ],
)
def test_targets(given: Any, kind: str) -> None:
    made = [tvm.target.Target(t) for t in given] if isinstance(given, list) else given
    assert device_target(made if isinstance(given, list) else tvm.target.Target(given)) == kind


def test_options_of_a_command_line() -> None:
    target = tvm.target.Target("cuda -libs=cudnn -max_num_threads=512")
    assert list(target.attrs["libs"]) == ["cudnn"]
    assert int(target.attrs["max_num_threads"]) == 512
    assert tvm.target.Target("cutlass").kind.name == "cutlass"
    target = tvm.target.Target("llvm -num-cores 4 -mcpu=core-avx2 --system-lib -runtime=c++")
    assert (int(target.attrs["num-cores"]), target.attrs["mcpu"]) == (4, "core-avx2")
    for wrong in ("cuda cudnn", "cuda -arch="):
        with pytest.raises(InvalidOption, match="-libs=cudnn"):
            tvm.target.Target(wrong)


def test_other_names_are_those_of_tvm() -> None:
    import tvm as installed

    assert tvm.cuda is installed.cuda is tvm.gpu
    assert tvm.ir.Range is installed.ir.Range
    tvm.testing.assert_allclose(1.0, 1.0)
    with pytest.raises(AttributeError):
        tvm.nothing_of_that_name  # noqa: B018


def test_modules_of_tvm_018() -> None:
    from convoy.relay.tvm018 import nd, te
    from convoy.relay.tvm018.arith import Analyzer
    from convoy.relay.tvm018.contrib import download, graph_executor, utils
    from convoy.relay.tvm018.contrib.utils import tempdir
    from convoy.relay.tvm018.ir.module import IRModule
    from convoy.relay.tvm018.relay.testing import mlp
    from convoy.relay.tvm018.runtime.vm import VirtualMachine
    from convoy.relay.tvm018.topi.utils import get_const_tuple

    assert graph_executor is convoy.graph_executor
    assert VirtualMachine is relay.vm.VirtualMachine
    assert IRModule is tvm.IRModule is relay.IRModule
    assert mlp is relay.testing.mlp
    assert nd is tvm.nd
    assert Analyzer().simplify(te.var("n") * 0) == 0
    assert download.download_testdata
    assert Path(tempdir().path).is_dir() or utils
    assert get_const_tuple((tvm.tir.IntImm("int32", 3),)) == (3,)
    assert relay.TensorType((tvm.tir.IntImm("int32", 3),)) == relay.TensorType((3,))
    assert isinstance(te.size_var("n"), tvm.tir.Var)
    with pytest.raises(AttributeError):
        tvm.__path_of_nothing__  # noqa: B018


def test_compilers_of_others() -> None:
    from convoy.relay.tvm018.contrib import util
    from convoy.relay.tvm018.driver import tvmc
    from convoy.relay.tvm018.relay.op.contrib import dnnl
    from convoy.relay.tvm018.relay.op.contrib.tensorrt import partition_for_tensorrt

    assert Path(util.tempdir().path).is_dir()
    for use in (partition_for_tensorrt, dnnl.partition_for_dnnl, tvmc.main):
        with pytest.raises(RemovedFromTvm, match=r"relay\.build|convoy"):
            use()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        relay.op.contrib.nothing  # noqa: B018
    with pytest.warns(UserWarning, match="no effect"), tvm.autotvm.tophub.context("llvm"):
        pass


def test_folders_of_convoy_keep_their_names() -> None:
    import convoy.lower
    from convoy.relay import removed

    removed.install()  # `lower` is also a name that TVM removed
    with pytest.raises(AttributeError, match=r"convoy\.lower"):
        convoy.lower.nothing  # noqa: B018


def test_names_of_2019() -> None:
    from convoy.relay.tvm018.contrib.debugger import debug_executor, debug_runtime

    assert debug_runtime is debug_executor
    assert tvm.module.load is tvm.runtime.load_module
    target = tvm.target.cuda(model="v100", arch="sm_80", options="-libs=cudnn,cublas")
    assert (target.arch, list(target.attrs["libs"])) == ("sm_80", ["cudnn", "cublas"])
    assert tvm.target.create("llvm -mcpu=core-avx2").kind.name == "llvm"
    compiler = relay.vm.VMCompiler()
    mod = relay.IRModule.from_expr(relay.exp(relay.var("x", shape=(2,))))
    optimized, params = compiler.optimize(mod, target="llvm", params={"w": 1})
    assert relay.structural_equal(optimized, mod)
    assert params == {"w": 1}


def test_the_debug_executor_times_kernels() -> None:
    x = relay.var("x", shape=(2, 3))
    y = relay.nn.softmax(relay.nn.dense(x, relay.const(np.ones((4, 3), "float32"))))
    lib = relay.build(relay.Function([x], y).with_attr("Primitive", 1), "llvm")
    assert lib.ir_mod["main"].attrs.get_int("Primitive") == 1
    device = tvm.cpu()
    debug = tvm.contrib.debugger.debug_executor.GraphModuleDebug(
        lib["debug_create"]("default", device), [device], lib.get_graph_json(), None
    )
    report = debug.profile(x=np.ones((2, 3), "float32"))
    np.testing.assert_allclose(debug.get_output(0).numpy(), 0.25)
    assert isinstance(report, tvm.runtime.profiling.Report)
    names = [call["Name"] for call in report.calls]
    assert "softmax" in names
    assert len(names) > 1
    data = json.loads(report.json())
    assert [call["Name"]["string"] for call in data["calls"]] == names
    assert data["device_metrics"][str(device)]["Percent"] == {"percent": 100}
    assert report.csv().splitlines()[0] == "Name,Duration (us),Percent,Count"
    assert len(report.csv().splitlines()) == len(names) + 1
    assert str(report).splitlines()[-2].startswith("Sum")


def test_the_executor_of_cuda_graphs() -> None:
    from convoy.relay.tvm018.contrib.cuda_graph import cuda_graph_executor

    x = relay.var("x", shape=(3,))
    lib = relay.build(relay.Function([x], relay.exp(x)), "llvm")
    made = [
        cuda_graph_executor.GraphModuleCudaGraph(lib["cuda_graph_create"](tvm.cpu())),
        cuda_graph_executor.create(lib.get_graph_json(), lib, tvm.cpu()),
    ]
    for module in made:
        module.set_input("x", np.zeros(3, "float32"))
        module.capture_cuda_graph()
        module.run_cuda_graph()
        np.testing.assert_array_equal(module.get_output(0).numpy(), 1)


def test_functions_of_debug_are_not_called() -> None:
    with pytest.warns(UserWarning, match="debug_func"):
        relay.debug(relay.var("x", shape=(3,)), debug_func=print)


def test_modules_of_tvm_ir() -> None:
    """`isinstance(call.op, tvm.ir.op.Op)` means Relay's operators."""
    import convoy.relay.tvm018.ir.transform as passes
    from convoy.relay.tvm018.ir.expr import RelayExpr
    from convoy.relay.tvm018.ir.tensor_type import TensorType
    from convoy.relay.tvm018.ir.type import TupleType

    assert tvm.ir.op.Op is relay.expr.Op and tvm.ir.Op.get("add") is relay.op.get("add")
    assert (RelayExpr, TensorType, TupleType) == (relay.Expr, relay.TensorType, relay.TupleType)
    assert passes.PassContext is tvm.transform.PassContext is tvm.ir.transform.PassContext
    assert tvm.ndarray.array is tvm.nd.array


def test_a_session_on_this_machine(tmp_path: Path) -> None:
    """Deployment scripts run with the session that stands for a device."""
    mod = tvm.IRModule.from_expr(relay.exp(relay.var("x", shape=(2,))))
    path = str(tmp_path / "net.tar")
    relay.build(mod, "llvm").export_library(path)
    remote = tvm.rpc.LocalSession()
    remote.upload(path)
    library, device = remote.load_module("net.tar"), remote.cpu(0)
    module = tvm.runtime.executor.AotModule(library["default"](device))
    module.run(x=tvm.nd.array(np.zeros(2, "float32"), device))
    out = module.get_output(0)
    np.testing.assert_array_equal(tvm.nd.from_dlpack(out.to_dlpack()).numpy(), 1)
    remote.upload(b"weights", "w.bin")
    assert remote.download("w.bin") == b"weights"
    remote.remove("w.bin")
    with pytest.raises(FileNotFoundError):
        remote.download("w.bin")
    with pytest.raises(InvalidOption, match="without a name"):
        remote.upload(b"weights")


def test_building_in_steps() -> None:
    w = relay.var("w", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([w], relay.exp(w)))
    builder = relay.build_module.BuildModule()
    builder.set_params({"w": np.zeros(2, "float32")})
    optimized, left = builder.optimize(mod, "llvm")
    assert not optimized["main"].params and not left
    graph, library, params = builder.build(mod, "llvm")
    assert (graph, params) == (builder.get_json(), builder.get_params())
    module = tvm.contrib.graph_executor.create(graph, library, tvm.cpu())
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), 1)


def test_schedules_and_strategies_are_refused_when_they_are_used() -> None:
    from convoy.relay.op.strategy.generic import wrap_compute_conv2d
    from convoy.relay.tvm018.relay.op import strategy
    from convoy.relay.tvm018.runtime.profiler_vm import VirtualMachineProfiler

    uses = [
        lambda: strategy.conv2d_strategy(None, [], None, None),
        lambda: strategy.generic.wrap_compute_dense(None),
        lambda: wrap_compute_conv2d(None),
        lambda: VirtualMachineProfiler(None, tvm.cpu()),
    ]
    for use in uses:
        with pytest.raises(RemovedFromTvm, match=r"relay\.op\.register|debug_executor"):
            use()
    with pytest.raises(RemovedFromTvm, match=r"te\.create_prim_func"):
        tvm.te.create_schedule(None)


def test_containers_and_factories_under_their_former_paths() -> None:
    from convoy.graph_executor import GraphExecutorFactoryModule
    from convoy.relay.tvm018.ir.container import Array
    from convoy.relay.tvm018.relay.backend import executor_factory

    assert list(Array([1, 2])) == [1, 2] and tvm.ir.container.Array is Array
    assert executor_factory.GraphExecutorFactoryModule is GraphExecutorFactoryModule
    assert tvm.expr.IntImm("int32", 3).value == 3 and tvm.runtime.String("x") == "x"


def test_targets_of_other_machines() -> None:
    with pytest.raises(RemovedFromTvm, match="CPU of this machine"):
        tvm.target.arm_cpu("rasp3b")
    with pytest.raises(RemovedFromTvm, match="CPU of this machine"):
        tvm.target.hexagon("v68")


def test_names_that_converters_of_scripts_import() -> None:
    from convoy.relay.tvm018.relay.frontend import common

    x = common.new_var("x", shape=(2, 3))
    assert common.infer_shape(common.get_relay_op("relu")(x)) == (2, 3)
    assert common.get_relay_op("nn.relu") is relay.nn.relu
    with pytest.raises(UnsupportedOp, match="nothing"):
        common.get_relay_op("nothing")
    total = common.infer_value(relay.sum(x), {"x": np.ones((2, 3), "float32")})
    assert total.numpy() == 6
    weight = relay.var("w", shape=(8, 3, 1, 1))
    assert [common.infer_channels(weight, t) for t in (False, True)] == [8, 3]
    two = common.fold_constant(relay.const(1.0) + relay.const(1.0))
    assert two.data.numpy() == 2


def test_values_that_converters_of_scripts_compute() -> None:
    from convoy.relay.frontend import common

    x, size = relay.var("x", shape=(2, 3)), relay.var("size", shape=(), dtype="int32")
    doubled = relay.multiply(size, relay.const(2))
    assert common.try_infer_value(doubled, parameters={"size": np.int32(4)}) == (8, True)
    assert common.try_infer_value(relay.const([1, 2]), common.to_int_list) == ([1, 2], True)
    assert common.try_infer_value(doubled) == (doubled, False)
    assert common.try_infer_value(doubled, on_failure=lambda: "later") == ("later", False)
    assert common.shape_of(x, start=1).value.tolist() == [3]
    assert common.infer_shape(x, relay.IRModule()) == (2, 3)
    unknown = relay.var("u", shape=(relay.Any(), 3))
    rows = common.unbind(x, -1)
    assert len(rows) == 3
    found = relay.create_executor("vm").evaluate(
        relay.Function([x, unknown], relay.Tuple([rows[2], common.shape_of(unknown, end=1)]))
    )(np.arange(6, dtype="float32").reshape(2, 3), np.zeros((5, 3), "float32"))
    assert [f.numpy().tolist() for f in found] == [[2, 5], [5]]


def test_nodes_by_type_key() -> None:
    assert tvm.ir.make_node("DictAttrs", name="x")["name"] == "x"
    assert tvm.ir.make_node("relay.attrs.ClipAttrs", a_min=0.0, a_max=1.0).a_max == 1.0
    span = tvm.ir.make_node("ir.SourceName", name="net.py")
    assert span.name == "net.py"  # TVM's own


def test_names_of_2018() -> None:
    from convoy.relay.ir_pass import infer_type
    from convoy.relay.module import Module

    x = relay.var("x", shape=(3,))
    function = infer_type(relay.Function([x], relay.op.add(x, x)))
    assert function.checked_type.ret_type.shape[0].value == 3
    mod = Module.from_expr(function)
    executor = relay.create_executor("debug", mod=mod, ctx=tvm.cpu(0))
    value = tvm.nd.array(np.ones(3, "float32"), ctx=tvm.cpu(0))
    np.testing.assert_array_equal(executor.evaluate()(value).asnumpy(), 2)
    lib = relay.build(mod, "llvm", cache=False)
    assert "ModuleID" in lib.get_source()
    assert lib.get_lib().imported_modules == []
    softmax = relay.Function([x], relay.nn.softmax(x))
    lib = relay.build(tvm.IRModule.from_expr(softmax), "cuda", cache=False)
    assert "__global__" in lib.lib.imported_modules[0].get_source()
    assert str(relay.sum(x, axis=[0]).attrs.axis) == "[0]"


def test_members_of_tvm_objects() -> None:
    assert tvm.cpu(0).device_type == 1
    assert tvm.device("llvm", 0) == tvm.cpu(0) == tvm.device(str(tvm.target.Target("llvm")), 0)
    np.testing.assert_array_equal(tvm.nd.array(np.arange(3)).asnumpy(), [0, 1, 2])


def test_removed_parts_say_what_replaces_them() -> None:
    from convoy.relay.tvm018 import autotvm
    from convoy.relay.tvm018.autotvm.tuner import Tuner

    with pytest.raises(RemovedFromTvm, match=r"autotvm\.tuner\.Tuner is no longer.*convoy tune"):
        Tuner("task")
    with pytest.raises(RemovedFromTvm, match="to_relax"):
        relay.backend.te_compiler.get().lower(None, "llvm")

    class Fallback(autotvm.FallbackContext):  # type: ignore[name-defined, misc]
        pass

    with pytest.raises(RemovedFromTvm, match="convoy tune"):
        Fallback()


def test_errors_are_those_of_tvm() -> None:
    with pytest.raises(tvm.TVMError):
        relay.parse("nothing")
    with pytest.raises(tvm.error.DiagnosticError):
        relay.testing.run_infer_type(relay.add(relay.var("x", shape=(2,)), relay.const([1, 2, 3])))


def test_clearing_the_compilers_cache_does_nothing() -> None:
    relay.backend.te_compiler.get().clear()
    relay.backend.compile_engine.get().clear()
    with pytest.raises(RemovedFromTvm, match=r"convoy\.relay\.to_relax"):
        relay.backend.te_compiler.get_tuning_records()


def test_relay_below_the_namespace() -> None:
    """`tvm018.relay.X` is `convoy.relay.X`, also where TVM removed a part of X."""
    from convoy.relay.tvm018.relay import backend
    from convoy.relay.tvm018.relay.backend import Executor, vm

    assert Executor("graph", {"link-params": True})["link-params"]
    assert backend is relay.backend and vm.compile is relay.vm.compile


def test_a_library_has_its_name(tmp_path: Path) -> None:
    x = relay.var("x", shape=(3,))
    lib = relay.build(tvm.IRModule.from_expr(x + x), target="llvm", mod_name="net")
    with pytest.raises(InvalidOption, match="'net'"):
        lib["default"]
    path = str(tmp_path / "net.so")
    lib.export_library(path)
    module = tvm.contrib.graph_executor.GraphModule(tvm.runtime.load_module(path)["net"](tvm.cpu()))
    module.run(x=np.ones(3, "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), 2)


def test_drawings_as_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from convoy.relay.tvm018.contrib import relay_viz
    from convoy.relay.tvm018.contrib.relay_viz.interface import VizEdge, VizNode
    from convoy.relay.tvm018.contrib.relay_viz.terminal import TermGraph, TermPlotter, TermVizParser

    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    shared = relay.nn.relu(x)
    body = relay.Tuple([relay.nn.dense(shared, w), shared])
    mod = tvm.IRModule.from_expr(relay.Function([x, w], body))
    mod["other"] = relay.Function([x], relay.add(x, relay.const(1.0)))
    relay_viz.RelayVisualizer(mod, {"w": None}).render()
    printed = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in printed if line.startswith("@")] == [
        "@main(%x, %w)", "@other(%x)",
    ]  # fmt: skip
    assert printed[1:5] == [
        "   Tuple", "      Call", "         nn.dense", "         Call",
    ]  # fmt: skip
    assert "Var(Param) name_hint: w, type: Tensor[(4, 3), float32]" in printed[7]
    assert "Const shape: (), dtype: float32" in printed[-1]
    assert sum("nn.relu" in line for line in printed) == 1

    class Parser(TermVizParser):
        def get_node_edges(self, node: Any, params: Any, ids: Any) -> Any:
            if isinstance(node, relay.Var):
                return VizNode(ids[node], "Mine", ""), []
            return super().get_node_edges(node, params, ids)

    class Graph(TermGraph):
        def node(self, viz_node: VizNode) -> None:
            super().node(viz_node)
            if viz_node.type_name == "Mine":
                super().node(VizNode("below " + viz_node.identity, "below", ""))
                super().edge(VizEdge("below " + viz_node.identity, viz_node.identity))

    class Plot(TermPlotter):
        def create_graph(self, name: str) -> Graph:
            self._name_to_graph[name] = Graph(name)
            return self._name_to_graph[name]

    file = tmp_path / "mod.txt"
    relay_viz.RelayVisualizer(mod, {}, Plot(), Parser()).render(str(file))
    lines = file.read_text().splitlines()
    assert sum("Mine" in line for line in lines) == sum("below" in line for line in lines) == 3
    with pytest.raises(RemovedFromTvm, match="TermPlotter"):
        relay_viz.DotPlotter()


def test_dense_layers_by_values_are_removed() -> None:
    import convoy.relay.data_dep_optimization as data_dep_optimization

    assert callable(relay.data_dep_optimization.bsr_dense.convert)
    with pytest.raises(RemovedFromTvm, match="sparse_dense"):
        data_dep_optimization.bsr_dense.convert(None, {}, (16, 1), 0.8)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("relay.transform.to_cps", "closures"),
        ("relay.testing.tf.get_workload", "from_onnx"),
        ("relay.op._make.concatenate", "to_relax"),
        ("relay.vision.nms_shape_func", "to_relax"),
        ("relay.frontend.tflite.get_pad_value", "from_onnx"),
        ("relay.backend.contrib.ethosu.tir.compiler", "to_relax"),
        ("relay.collage.collage.CostEstimator", "measured cost"),
        ("lower", "create_prim_func"),
        ("tir.stmt_functor.substitute", "create_prim_func"),
        ("topi.cuda.conv3d_winograd._infer_tile_size", "register_compute"),
        ("target.datatype.register", "relay.op.register"),
        ("utils.roofline_analysis", "convoy bench"),
        ("_ffi.runtime_ctypes.DataType", "tvm_ffi"),
        ("rpc.tracker.Tracker", "LocalSession"),
    ],
)
def test_removed_names_are_found_and_refused_by_name(name: str, remedy: str) -> None:
    """As attributes and by import; a use says what takes their place."""
    found: Any = tvm
    for part in name.split("."):
        found = getattr(found, part)
    with pytest.raises(RemovedFromTvm, match=remedy):
        found()


@pytest.mark.parametrize(
    "module", ["rpc.tracker", "topi.cuda.conv3d_winograd", "relay.testing.tf", "utils.roofline"]
)
def test_removed_modules_are_imported(module: str) -> None:
    with pytest.raises(RemovedFromTvm):
        importlib.import_module(f"convoy.relay.tvm018.{module}").anything()


def test_members_that_an_executable_lost() -> None:
    x = relay.var("x", shape=(2,))
    executable = relay.vm.compile(relay.IRModule.from_expr(x + x), "llvm")
    with pytest.raises(RemovedFromTvm, match="holds its constants"):
        executable.move_late_bound_consts("consts.bin", 256)
    with pytest.raises(AttributeError):
        executable.nothing_of_that_name  # noqa: B018


def test_names_that_never_were_are_no_stand_ins() -> None:
    for module in (relay, relay.transform, relay.op.nn, relay.testing, tvm.topi, tvm.tir):
        with pytest.raises(AttributeError):
            module.nothing_of_that_name  # noqa: B018


def test_names_that_moved() -> None:
    from convoy.relay.frontend.tensorflow import from_tensorflow
    from convoy.relay.tvm018.runtime.executor.aot_executor import AotModule

    assert from_tensorflow is relay.frontend.from_tensorflow
    assert AotModule is tvm.runtime.executor.AotModule
    assert tvm.relay.backend.executor_factory.GraphExecutorFactoryModule.__name__
    assert relay.op.contrib.partition_for_cutlass is relay.op.contrib.cutlass.partition_for_cutlass
    assert isinstance(tvm.te.size_var("n"), tvm.tir.SizeVar)
    x = relay.var("x", shape=(2,))
    node = relay.If(relay.const(True), x, x)
    assert relay.IfWithFields(node, false_branch=x + x).true_branch is x
