"""relay.build, the factory and GraphModule, on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from convoy import errors, graph_executor, relay
from convoy.errors import (
    ConvoyError,
    CorruptArtefact,
    DynamicShape,
    InvalidOption,
    RelayTypeError,
    UnsupportedDtype,
    UnsupportedOp,
)

from .running import HEAD

TEXT = f"""{HEAD}def @main(%data: Tensor[(1, 2, 6, 6), float32], %w, %b) {{
  %0 = nn.conv2d(%data, %w, padding=[1, 1], channels=3, kernel_size=[3, 3]);
  %1 = nn.bias_add(%0, %b);
  (nn.relu(%1), %0)
}}
"""
RNG = np.random.default_rng(0)
DATA = RNG.uniform(-1, 1, (1, 2, 6, 6)).astype("float32")
PARAMS = {
    "w": RNG.uniform(-1, 1, (3, 2, 3, 3)).astype("float32"),
    "b": RNG.uniform(-1, 1, 3).astype("float32"),
}


def expected(params: dict[str, np.ndarray] = PARAMS) -> list[np.ndarray]:
    from .reference import conv

    y = conv(DATA, params["w"], (1, 1), [(1, 1), (1, 1)], (1, 1)).astype("float32")
    return [np.maximum(y + params["b"][:, None, None], 0), y]


@pytest.fixture(scope="module")
def bound() -> Any:
    return relay.build(relay.parse(TEXT), target="llvm", params=PARAMS)


@pytest.fixture(scope="module")
def unbound() -> Any:
    return relay.build(relay.parse(TEXT), target="llvm")


def outputs(module: graph_executor.GraphModule) -> list[np.ndarray]:
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def close(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, 1e-5, 1e-5)


class TestGraphModule:
    def test_bound_parameters(self, bound: Any) -> None:
        module = graph_executor.GraphModule(bound["default"](tvm.cpu()))
        module.set_input("data", DATA)
        close(outputs(module), expected())
        assert module.get_num_inputs() == 1

    def test_weights_swapped_take_effect(self, unbound: Any) -> None:
        module = graph_executor.GraphModule(unbound["default"](tvm.cpu()))
        module.set_input(data=DATA, **PARAMS)
        close(outputs(module), expected())
        other = {"w": PARAMS["w"] * 2, "b": PARAMS["b"] - 1}
        module.set_input("w", tvm.runtime.tensor(other["w"]))
        module.set_input(2, other["b"])
        close(outputs(module), expected(other))

    def test_parameters_from_bytes(self, unbound: Any) -> None:
        module = graph_executor.GraphModule(unbound["default"](tvm.cpu()))
        module.load_params(relay.save_param_dict({**PARAMS, "unused": PARAMS["b"]}))
        module.set_input("data", DATA)
        close(outputs(module), expected())
        other = graph_executor.GraphModule(unbound["default"](tvm.cpu()))
        other.share_params(module, relay.save_param_dict(PARAMS))
        other.set_input("data", DATA)
        close(outputs(other), expected())

    def test_zero_copy_reads_at_every_run(self, unbound: Any) -> None:
        module = graph_executor.GraphModule(unbound["default"](tvm.cpu()))
        module.set_input(**PARAMS)
        data = tvm.runtime.tensor(DATA)
        out = tvm.runtime.tensor(np.zeros((1, 3, 6, 6), "float32"))
        module.set_input_zero_copy("data", data)
        module.set_output_zero_copy(0, out)
        close([*outputs(module)], expected())
        data.copyfrom(DATA * 0)
        module.run()
        want = np.maximum(PARAMS["b"][:, None, None] + np.zeros((1, 3, 6, 6), "float32"), 0)
        np.testing.assert_allclose(out.numpy(), want, 1e-6)

    def test_zero_copy_of_functions_by_name(self, unbound: Any) -> None:
        module = graph_executor.GraphModule(unbound["default"](tvm.cpu()))
        module.set_input(**PARAMS)
        data = tvm.runtime.tensor(DATA * 0)
        out = tvm.runtime.tensor(np.zeros((1, 3, 6, 6), "float32"))
        module.module["set_input_zero_copy"](0, data)
        module["set_output_zero_copy"](0, out)
        data.copyfrom(DATA)
        module.module["run"]()
        close([out.numpy()], expected()[:1])

    def test_what_is_known_of_inputs(self, unbound: Any) -> None:
        module = graph_executor.GraphModule(unbound["default"](tvm.cpu()))
        shapes, dtypes = module.get_input_info()
        assert shapes == {"data": (1, 2, 6, 6), "w": (3, 2, 3, 3), "b": (3,)}
        assert isinstance(shapes["data"], tvm.runtime.ShapeTuple)
        assert set(dtypes.values()) == {"float32"}
        assert module.get_input_index("w") == 1
        assert module.get_input_index("nothing") == -1
        assert module.get_input("nothing") is None
        module.set_input("b", PARAMS["b"])
        np.testing.assert_array_equal(module.get_input("b").numpy(), PARAMS["b"])
        out = tvm.runtime.tensor(np.zeros(3, "float32"))
        np.testing.assert_array_equal(module.get_input(2, out).numpy(), PARAMS["b"])

    def test_unknown_input(self, bound: Any) -> None:
        module = graph_executor.GraphModule(bound["default"](tvm.cpu()))
        with pytest.raises(RuntimeError, match="Could not find 'x' in graph's inputs"):
            module.set_input("x", DATA)
        with pytest.raises(ConvoyError):
            module.set_input("x", DATA)
        module.set_input(x=DATA)  # by keyword it is passed over, as in TVM

    def test_wrong_values(self, bound: Any) -> None:
        module = graph_executor.GraphModule(bound["default"](tvm.cpu()))
        with pytest.raises(InvalidOption, match="shape"):
            module.set_input("data", DATA[:, :1])
        with pytest.raises(InvalidOption, match="'x' for input 'data'; expected an array"):
            module.set_input("data", "x")
        with pytest.raises(InvalidOption):
            module.get_output(2)
        with pytest.raises(InvalidOption):
            graph_executor.GraphModule(bound)  # type: ignore[arg-type]
        with pytest.raises(NotImplementedError):
            module.debug_get_output(0)

    def test_functions_by_name(self, bound: Any) -> None:
        module = graph_executor.GraphModule(bound["default"](tvm.cpu()))
        module["set_input"]("data", DATA)
        module["run"]()
        np.testing.assert_allclose(module["get_output"](1).numpy(), expected()[1], 1e-5, 1e-5)

    def test_benchmark(self, bound: Any) -> None:
        module = graph_executor.GraphModule(bound["default"](tvm.cpu()))
        result = module.benchmark(tvm.cpu(), repeat=3, number=2, data=DATA)
        assert len(result.results) == 3
        assert 0 < result.min <= result.median <= result.max < 10
        assert result.min <= result.mean <= result.max
        slow = module.benchmark(tvm.cpu(), repeat=1, number=1, end_to_end=True, min_repeat_ms=5)
        assert slow.mean > 0
        with pytest.raises(InvalidOption):
            module.benchmark(tvm.cpu(), func_name="train")


class TestFactory:
    def test_is_what_it_was(self, bound: Any) -> None:
        assert bound.libmod_name == "default"
        assert bound.get_params() == {}
        assert isinstance(bound.ir_mod, relay.IRModule)
        with pytest.raises(InvalidOption, match="default"):
            bound["other"]

    def test_three_parts(self, bound: Any) -> None:
        with pytest.warns(DeprecationWarning):
            graph, lib, params = bound
        module = graph_executor.create(graph, lib, tvm.cpu())
        module.set_input("data", DATA)
        module.set_input(**params)
        close(outputs(module), expected())

    def test_export_and_load_in_a_fresh_process(self, bound: Any, tmp_path: Path) -> None:
        path = tmp_path / "net.so"
        bound.export_library(path)
        np.save(tmp_path / "data.npy", DATA)
        script = (
            "import sys, numpy as np, tvm\n"
            "from convoy import graph_executor, relay\n"
            f"lib = relay.load_module({str(path)!r})\n"
            "m = graph_executor.GraphModule(lib['default'](tvm.cpu()))\n"
            f"m.set_input('data', np.load({str(tmp_path / 'data.npy')!r}))\n"
            "m.run()\n"
            f"np.save({str(tmp_path / 'out.npy')!r}, m.get_output(0).numpy())\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
        np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected()[0], 1e-5, 1e-5)

    def test_damaged_file(self, bound: Any, tmp_path: Path) -> None:
        path = tmp_path / "net.so"
        bound.export_library(path)
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(CorruptArtefact):
            relay.load_module(path)


class TestArguments:
    @pytest.mark.parametrize(
        ("target", "kind"),
        [
            ("llvm", "llvm"),
            ("llvm -mcpu=core-avx2", "llvm"),
            ("cuda", "cuda"),
            ("cuda -libs=cudnn,cublas", "cuda"),
            ("nvidia/nvidia-h100", "cuda"),
            ({"kind": "cuda", "arch": "sm_90"}, "cuda"),
            ({"cpu": "llvm"}, "llvm"),
            (["cuda", {"kind": "cutlass", "sm": 90}], "cuda"),
            (tvm.target.Target("llvm"), "llvm"),
        ],
    )
    def test_targets(self, target: Any, kind: str) -> None:
        from convoy.relay.build import device_target

        assert device_target(target) == kind

    @pytest.mark.parametrize("target", [None, "opencl", "", {}, ["cutlass"], 3])
    def test_targets_refused(self, target: Any) -> None:
        with pytest.raises(InvalidOption, match="cuda"):
            relay.build(relay.parse(TEXT), target=target)

    def test_target_of_the_context(self) -> None:
        from convoy.relay.build import device_target

        with tvm.target.Target("llvm"):
            assert device_target(None) == "llvm"

    def test_a_function(self) -> None:
        x = relay.var("x", shape=(2,))
        lib = relay.build(relay.Function([x], relay.exp(x)), target="llvm", mod_name="m")
        assert lib["m"]

    def test_not_a_module(self) -> None:
        with pytest.raises(InvalidOption, match="must be IRModule"):
            relay.build(TEXT, target="llvm")  # type: ignore[arg-type]

    def test_passes_that_mean_nothing_are_named(self) -> None:
        mod = relay.parse(TEXT)
        with (
            tvm.transform.PassContext(opt_level=3, disabled_pass=["AlterOpLayout"]),
            pytest.warns(UserWarning, match="AlterOpLayout"),
        ):
            relay.build(mod, target="llvm", params=PARAMS)

    def test_parameters_that_do_not_fit(self) -> None:
        with pytest.raises(RelayTypeError, match="params\\['b'\\]"):
            relay.build(relay.parse(TEXT), target="llvm", params={"b": PARAMS["w"]})
        with pytest.raises(RelayTypeError, match="float64"):
            relay.build(relay.parse(TEXT), "llvm", params={"b": PARAMS["b"].astype("float64")})

    def test_unused_names_are_passed_over(self) -> None:
        relay.build(relay.parse(TEXT), target="llvm", params={**PARAMS, "unused": DATA})

    def test_precision_follows_the_module(self) -> None:
        from convoy.relay.build import precision_of

        assert precision_of(relay.parse(TEXT)) == "float32"
        assert precision_of(relay.parse(TEXT.replace("float32", "float16"))) == "float16"


class TestRefusals:
    """What is unsupported is named, with its place and a way out."""

    def test_unknown_sizes(self) -> None:
        text = f"{HEAD}def @main(%x: Tensor[(?, 4), float32]) {{ nn.relu(%x) }}"
        with pytest.raises(DynamicShape, match=r"%x.*relay\.vm\.compile"):
            relay.build(relay.parse(text), target="llvm")

    def test_control_flow(self) -> None:
        text = f"{HEAD}def @main(%c: bool) {{ if (%c) {{ 1f }} else {{ 2f }} }}"
        with pytest.raises(UnsupportedOp, match=r"relay\.vm\.compile"):
            relay.build(relay.parse(text), target="llvm")

    def test_dtype(self) -> None:
        text = f'{HEAD}def @main(%x: float32) {{\n  cast(%x, dtype="float17x")\n}}'
        with pytest.raises(UnsupportedDtype, match=r"from_string:3:3.*float17x"):
            relay.build(relay.parse(text), target="llvm")

    def test_a_function_as_result(self) -> None:
        text = f"{HEAD}def @main(%x: float32) {{ fn (%y: float32) {{ %y }} }}"
        with pytest.raises(ConvoyError):
            relay.build(relay.parse(text), target="llvm")

    def test_recursion(self) -> None:
        text = f"{HEAD}def @main(%x: float32) -> float32 {{\n  @main(%x)\n}}"
        with pytest.raises(UnsupportedOp, match="recursive"):
            relay.build(relay.parse(text), target="llvm")


@pytest.mark.parametrize("body", ["argmax(%x, axis=[1])", "argmin(%x, axis=[2], keepdims=True)"])
def test_positions_of_extremes_compile_for_a_gpu(body: str) -> None:
    text = f"{HEAD}def @main(%x: Tensor[(2, 6, 5), float32]) {{ {body} }}"
    relay.build(relay.parse(text), target="cuda", measure=False, backends=("tvm",))


def test_results_sized_by_data_are_named() -> None:
    x = relay.var("x", shape=(2, 3))
    with pytest.raises(errors.UnsupportedOp, match="argwhere, whose result is as large"):
        relay.to_relax(relay.Function([x], relay.argwhere(x)), {})


def test_a_missing_archive_is_a_wrong_option(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidOption, match="does not exist"):
        relay.load_module(tmp_path / "none.tar")
