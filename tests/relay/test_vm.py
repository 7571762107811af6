"""relay.vm, create_executor, and modules beyond a graph."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from convoy import graph_executor, relay
from convoy.errors import CorruptArtefact, InvalidOption, RelayTypeError
from convoy.ir.sealed_file import sealed
from convoy.relay.op.contrib import cudnn, cutlass
from convoy.relay.vm import archive

from ..helpers import unoptimized
from .reference import conv
from .running import HEAD, run_stock

RNG = np.random.default_rng(0)
BRANCHES = f"""{HEAD}def @main(%x: Tensor[(4), float32]) {{
  %0 = sum(%x);
  %1 = exp(%x);
  %2 = if (less(%0, 0f)) {{
    %3 = negative(%1);
    if (less(%0, -100f)) {{ %3 }} else {{ (add(%3, %x)) }}
  }} else {{
    multiply(%1, %x)
  }};
  add(%2, %1)
}}
"""


def branches(x: np.ndarray) -> np.ndarray:
    e = np.exp(x)
    if x.sum() < 0:
        return (-e if x.sum() < -100 else -e + x) + e
    return e * x + e


@pytest.mark.parametrize("shift", [0.0, -1.0, -50.0])
def test_branches(shift: float) -> None:
    machine = relay.vm.VirtualMachine(
        relay.vm.compile(relay.parse(BRANCHES), target="llvm"), tvm.cpu()
    )
    x = (RNG.uniform(0, 1, 4) + shift).astype("float32")
    np.testing.assert_allclose(machine.run(x).numpy(), branches(x), 1e-5, 1e-5)


def test_unknown_batch() -> None:
    text = f"""{HEAD}def @main(%x: Tensor[(?, 3, 6, 6), float32], %w) {{
      %0 = nn.conv2d(%x, %w, padding=[1, 1], channels=4, kernel_size=[3, 3]);
      nn.batch_flatten(nn.max_pool2d(nn.relu(%0), pool_size=[2, 2], strides=[2, 2]))
    }}"""
    w = RNG.uniform(-1, 1, (4, 3, 3, 3)).astype("float32")
    exe = relay.vm.compile(relay.parse(text), target="llvm", params={"w": w})
    machine = relay.vm.VirtualMachine(exe, tvm.cpu())
    for batch in (1, 3):
        x = RNG.uniform(-1, 1, (batch, 3, 6, 6)).astype("float32")
        y = np.maximum(conv(x, w, (1, 1), [(1, 1), (1, 1)], (1, 1)), 0)
        want = y.reshape(batch, 4, 3, 2, 3, 2).max((3, 5)).reshape(batch, -1)
        np.testing.assert_allclose(machine.invoke("main", x).numpy(), want, 1e-5, 1e-5)


@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_unknown_sizes_and_branches_compile_for_either_target(kind: str) -> None:
    text = (
        f"{HEAD}def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) {{ %x + %y }}"
    )
    assert not relay.vm.compile(relay.parse(text), target=kind).is_graph
    assert not relay.vm.compile(relay.parse(BRANCHES), target=kind).is_graph


def test_unknown_sizes_that_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are equal, or one of them broadcasts: where kernels find others, as they check."""
    monkeypatch.setattr(unoptimized, "checks", True)
    text = f"""{HEAD}def @main(%x: Tensor[(?, 3, 4), float32], %y: Tensor[(?, 5, 4), float32]) {{
      nn.batch_matmul(%x, %y, transpose_b=True)
    }}"""
    machine = relay.vm.VirtualMachine(relay.vm.compile(relay.parse(text), "llvm"), tvm.cpu())
    x, y = (RNG.uniform(-1, 1, (2, n, 4)).astype("float32") for n in (3, 5))
    np.testing.assert_allclose(machine.run(x, y).numpy(), x @ y.transpose(0, 2, 1), 1e-5, 1e-6)
    np.testing.assert_allclose(
        machine.run(x, y[:1]).numpy(), x @ y[:1].transpose(0, 2, 1), 1e-5, 1e-6
    )
    with pytest.raises(RelayTypeError, match="equal batches"):
        machine.run(x, np.concatenate([y, y]))


def test_sizes_that_are_variables_of_tvm() -> None:
    n = tvm.te.var("n")
    x, y = relay.var("x", shape=(n, 3)), relay.var("y", shape=(n + 1, 3))
    both = relay.concatenate([relay.nn.relu(x), y], axis=0)
    exe = relay.vm.compile(relay.Function([x, y], both), "llvm")
    machine = relay.vm.VirtualMachine(exe, tvm.cpu())
    for size in (2, 5):
        a, b = (RNG.uniform(-1, 1, (rows, 3)).astype("float32") for rows in (size, size + 1))
        want = np.concatenate([np.maximum(a, 0), b])
        np.testing.assert_array_equal(machine.run(a, b).numpy(), want)


def test_machine_on_a_graph() -> None:
    pair = "%x: Tensor[(2), float32], %y: Tensor[(2), float32]"
    text = f"{HEAD}def @main({pair}) {{ (%x + %y, %x * %y) }}"
    machine = relay.vm.VirtualMachine(relay.vm.compile(relay.parse(text), "llvm"), tvm.cpu())
    x, y = np.array([1, 2], "float32"), np.array([3, 5], "float32")
    total, product = machine.run(x, y=y)
    again = machine.run(y, y)
    np.testing.assert_array_equal(total.numpy(), x + y)  # results outlive the next run
    np.testing.assert_array_equal(product.numpy(), x * y)
    np.testing.assert_array_equal(again[1].numpy(), y * y)
    machine.set_input("main", x, y)
    machine.invoke_stateful("main")
    np.testing.assert_array_equal(machine.get_outputs()[0].numpy(), x + y)
    assert machine.benchmark(tvm.cpu(), x, y, repeat=2, number=1).mean > 0
    timed = machine.module.time_evaluator("invoke", tvm.cpu(), number=1, repeat=2)
    assert len(timed("main").results) == 2  # of the inputs that were set
    np.testing.assert_array_equal(machine.module["invoke"]("main", y, y)[0].numpy(), y + y)
    with pytest.raises(InvalidOption, match="get_outputs"):
        machine.module["_run"]
    for bad in ({"z": x}, {"x": x}):
        with pytest.raises(InvalidOption):
            machine.run(**bad)
    with pytest.raises(InvalidOption):
        machine.invoke("other", x, y)


@pytest.mark.parametrize("kind", ["debug", "graph", "vm"])
def test_create_executor(kind: str) -> None:
    x = relay.var("x", shape=(3,))
    function = relay.Function([x], relay.exp(x) + x)
    value = np.array([1, 2, 3], "float32")
    run = relay.create_executor(kind, device=tvm.cpu()).evaluate(function)
    np.testing.assert_allclose(run(value).numpy(), np.exp(value) + value, 1e-6)
    mod = relay.IRModule.from_expr(function)
    got = relay.create_executor(kind, mod).evaluate()(x=value)
    np.testing.assert_allclose(got.numpy(), np.exp(value) + value, 1e-6)
    constant = relay.create_executor(kind).evaluate(relay.const(2.0) + relay.const(3.0))
    assert constant.numpy() == 5


def test_create_executor_of_another_kind() -> None:
    with pytest.raises(InvalidOption, match="debug"):
        relay.create_executor("interpreter")


PARTITIONED = f"""{HEAD}
def @main(%x: Tensor[(2, 3), float32]) {{
  %4 = fn (%a: Tensor[(2, 3), float32], Composite="lib.relu_abs") {{ abs(nn.relu(%a)) }};
  let %y = @part(%x);
  %4(%y)
}}
def @part(%i: Tensor[(2, 3), float32], Compiler="lib", global_symbol="part", Inline=1) {{
  %2 = fn (%a: Tensor[(2, 3), float32], Composite="lib.neg") {{ negative(%a) }};
  %2(%i)
}}
"""


def test_partitioned_functions_are_whole_again() -> None:
    x = RNG.uniform(-1, 1, (2, 3)).astype("float32")
    mod = relay.parse(PARTITIONED)
    np.testing.assert_allclose(run_stock(mod, x)[0], np.abs(np.maximum(-x, 0)))
    assert [str(g.name_hint) for g in relay.to_relax(mod).get_global_vars()] == ["main"]


def test_closures_see_the_variables_around_them() -> None:
    body = "let %f = fn (%y: float32) { add(%x, %y) }; %f(%f(1f))"
    text = f"{HEAD}def @main(%x: float32) {{ {body} }}"
    assert run_stock(relay.parse(text), np.float32(5))[0] == 11


def test_partitioning_for_a_library_binds_and_marks() -> None:
    x, w = relay.var("x", shape=(4, 3)), relay.var("w", shape=(2, 3))
    mod = relay.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    value = np.ones((2, 3), "float32")
    parted = cutlass.partition_for_cutlass(mod, {"w": value, "unused": value})
    assert [p.name_hint for p in parted["main"].params] == ["x"]
    assert len(mod["main"].params) == 2
    assert cutlass.num_cutlass_partitions(parted) == 1
    assert cutlass.num_cutlass_partitions(mod) == 0
    assert cudnn.partition_for_cudnn(mod).attrs["convoy.backends"] == ("cudnn", "tvm")
    np.testing.assert_array_equal(run_stock(parted, np.ones((4, 3), "float32"))[0], 3)


def test_passes() -> None:
    mod = relay.parse(PARTITIONED)
    seq = relay.transform.Sequential(
        [
            relay.transform.InferType(),
            relay.transform.AlterOpLayout(),
            relay.transform.FoldConstant(),
        ]
    )
    assert relay.structural_equal(seq(mod), mod)
    mod["spare"] = mod["part"]
    assert set(relay.transform.RemoveUnusedFunctions()(mod)) == {"main", "part"}
    with pytest.raises(AttributeError, match="'FoldConstant'"):
        relay.transform.FoldConstants()
    with pytest.raises(RelayTypeError, match="@part"):
        relay.transform.gradient(mod["main"])  # without the module


@pytest.mark.parametrize("unknown", [False, True])
def test_saved_and_loaded(unknown: bool, tmp_path: Path) -> None:
    size = "?" if unknown else "3"
    mod = relay.parse(f"{HEAD}def @main(%x: Tensor[({size}, 4), float32]) {{ exp(%x) }}")
    loaded = cutlass.finalize_modules_vm(relay.vm.compile(mod, "llvm"), tmp_dir=str(tmp_path))
    x = RNG.uniform(-1, 1, (3, 4)).astype("float32")
    got = relay.vm.VirtualMachine(loaded, tvm.cpu()).run(x.astype("float64")).numpy()
    np.testing.assert_allclose(got, np.exp(x), 1e-6)
    for code in (b"", b"[]", b"{}"):
        with pytest.raises(CorruptArtefact):
            relay.vm.Executable.load_exec(code, loaded.lib)
    with pytest.raises(CorruptArtefact, match=r"relay\.load_module"):
        relay.vm.Executable.load_exec(loaded.save()[0], None)


ABOUT = {"inputs": ["x"], "graph": True, "result": None, "dtypes": {}}


@pytest.mark.parametrize(
    "about",
    [
        [],
        {},
        ABOUT,
        {**ABOUT, "result": [1]},
        {**ABOUT, "dtypes": None},
        {"evaluated": 1, "target": "no"},
    ],
)
def test_files_of_executables_that_are_damaged(about: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    archive.write(path, archive.Archive(about))
    with pytest.raises(CorruptArtefact):
        relay.load_module(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptArtefact):
        relay.load_module(path)


def test_compressed_files_are_refused(tmp_path: Path) -> None:
    """What a few bytes unpack to would have no bound."""

    def compressed(path: str) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("about.json", "{}" + " " * 10**6)

    path = tmp_path / "net.so"
    path.write_bytes(sealed(compressed))
    with pytest.raises(CorruptArtefact, match="compressed"):
        relay.load_module(path)


def test_scripts_of_the_first_cutlass_integration(tmp_path: Path) -> None:
    x, w = relay.var("x", shape=(4, 3)), relay.var("w", shape=(2, 3))
    mod = relay.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    parted, count = cutlass.tune_cutlass_kernels(cutlass.partition_for_cutlass(mod), 80)
    assert count == 1
    lib = cutlass.build_cutlass_kernels(relay.build(parted, "llvm"), 80, str(tmp_path))
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(x=np.ones((4, 3), "float32"), w=np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), 3)


def test_differences_are_shown() -> None:
    mod = relay.parse(BRANCHES)
    relay.assert_structural_equal(mod, relay.parse(BRANCHES))
    with pytest.raises(ValueError, match="exp"):
        relay.assert_structural_equal(mod["main"], mod["main"].body)


def test_a_list_of_tensors_is_a_tuple() -> None:
    row = relay.TensorType((relay.Any(), 2), "float32")
    pair = relay.var("p", type_annotation=relay.TupleType([row, relay.TupleType([row, row])]))
    inner = relay.TupleGetItem(pair, 1)
    body = relay.TupleGetItem(pair, 0) + relay.TupleGetItem(inner, 0) * relay.TupleGetItem(inner, 1)
    run = relay.create_executor("vm").evaluate(relay.Function([pair], body))
    x = np.full((3, 2), 3, "float32")
    np.testing.assert_array_equal(run([x, [x, x]]).numpy(), np.full((3, 2), 12))


def test_copies_to_other_devices_are_their_argument() -> None:
    x = relay.var("x", shape=(2,))
    y = relay.exp(relay.device_copy(relay.negative(x), tvm.cpu(), "cuda"))
    found = relay.create_executor("vm").evaluate(relay.Function([x], y))(np.zeros(2, "float32"))
    np.testing.assert_array_equal(found.numpy(), 1)
