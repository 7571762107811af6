"""Each operator of Relax by itself: it compiles for a GPU, or the build says in one sentence why
not; and what convoy says by other operators means the same."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import relax

import convoy
from convoy.errors import ConvoyError, UnsupportedOp
from convoy.graph.expr import relax_ops
from convoy.graph.function import calls_of
from convoy.lower import decompose

from ..graph.operators import BOOL_PAIRS, all_operators

OPERATORS = all_operators()

#: The error of those that do not compile, and what it says.
REFUSED = {
    "dynamic_strided_slice": (UnsupportedOp, "expected results of known sizes"),
    "nonzero": (UnsupportedOp, "expected results of known sizes"),
    "unique": (UnsupportedOp, "expected results of known sizes"),
    "all_class_non_max_suppression": (UnsupportedOp, "only known when it runs"),
    "non_max_suppression": (UnsupportedOp, "kernel non_max_suppression of float32(1, 8, 6)"),
    "non_max_suppression_indices": (UnsupportedOp, "kernel non_max_suppression of float32(1, 8"),
}
#: Those that need a simpler schedule than that of first choice.
RESCHEDULED = {
    "index_put", "index_put_sum", "take_backward", "get_valid_counts", "max_pool2d_backward",
}  # fmt: skip


def build(name: str, target: str) -> convoy.CompiledModule:
    return convoy.build(OPERATORS[name].module(), target, precision="float32", streams=1)


@pytest.mark.parametrize("name", OPERATORS)
def test_compiles_for_a_gpu_or_says_why_not(name: str) -> None:
    if name in REFUSED:
        kind, text = REFUSED[name]
        with pytest.raises(ConvoyError) as caught:
            build(name, "cuda")
        assert isinstance(caught.value, kind) and text in str(caught.value)
        assert len(str(caught.value)) < 1200
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = build(name, "cuda")
    assert bool(built.meta.rescheduled) == (name in RESCHEDULED)


def by_numpy(name: str, x: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    if name == "ewise_fma":
        return [x * others[0] + others[1]]
    if name in ("max_bool", "min_bool"):
        return [x.max(1) if name == "max_bool" else x.min(1)]
    if name.endswith("_bool"):
        return [getattr(np, name.removesuffix("_bool"))(x, *others)]
    if name == "pixel_shuffle":
        apart = x.reshape(1, 2, 2, 2, 3, 3)
        return [apart.transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 6, 6)]
    axis = {"median": 1, "median_first": 0}.get(name)
    if axis is None:
        return [np.sort(x.ravel())[(x.size - 1) // 2]]
    places = np.argsort(x, axis)
    middle = [(x.shape[axis] - 1) // 2]
    place = places.take(middle, axis)
    return [np.take_along_axis(x, place, axis), place]


@pytest.mark.parametrize(
    "name",
    ["ewise_fma", "max_bool", "min_bool", "pixel_shuffle", "median", "median_all", "median_first",
     *(f"{name}_bool" for name in BOOL_PAIRS)],
)  # fmt: skip
def test_other_operators_mean_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled for the CPU, also what is only decomposed for a GPU."""
    monkeypatch.setattr(decompose, "on_gpu", lambda: True)
    seen = []
    real = decompose.Decompose.rewrite

    def rewrite(self, call, old):
        seen.append(real(self, call, old))
        return seen[-1]

    monkeypatch.setattr(decompose.Decompose, "rewrite", rewrite)
    inputs = OPERATORS[name].arrays()
    got = [np.array(y) for y in build(name, "llvm").session()(*inputs)]
    assert any(new is not None for new in seen)
    for y, want in zip(got, by_numpy(name, *inputs), strict=True):
        assert y.dtype == want.dtype
        np.testing.assert_allclose(y, want.reshape(y.shape), rtol=1e-6)


@pytest.mark.parametrize("letter", "hb")
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("acos", np.arccos), ("asin", np.arcsin), ("atan", np.arctan), ("asinh", np.arcsinh),
        ("atanh", np.arctanh), ("atan2", np.arctan2), ("log_add_exp", np.logaddexp),
        ("mod", np.fmod), ("cosh", np.cosh), ("sinh", np.sinh), ("round", np.round),
        ("isfinite", np.isfinite), ("isnan", np.isnan), ("isinf", np.isinf),
    ],
)  # fmt: skip
def test_what_tvm_knows_in_float32_only(name: str, function, letter: str) -> None:
    inputs = OPERATORS[f"{name}_{letter}"].arrays()
    (y,) = build(f"{name}_{letter}", "llvm").session()(*inputs)
    got, want = np.array(y), function(*[x.astype("float32") for x in inputs])
    assert got.dtype == (bool if want.dtype == bool else inputs[0].dtype)
    tolerance = 1e-3 if letter == "h" else 8e-3
    np.testing.assert_allclose(got.astype("float32"), want, rtol=tolerance, atol=tolerance)


def test_tanh_keeps_its_digits() -> None:
    x = np.concatenate([np.logspace(-30, 2, 321), [0.0, np.inf, np.nan]]).astype("float32")
    x = np.concatenate([x, -x])
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.tanh(data))
        builder.emit_func_output(out)
    (y,) = convoy.build(builder.finalize(), "llvm", precision="float32").session()(x)
    np.testing.assert_allclose(np.array(y), np.tanh(x.astype("float64")), rtol=4e-7, atol=0)


def test_norms_of_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompose, "on_gpu", lambda: True)
    x = np.array([[2], [-3], [np.inf], [np.nan]], "float32")
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    scale, shift = (relax.const(np.array([value], "float32")) for value in (5, 0.5))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            norm = builder.emit(relax.op.nn.layer_norm(data, scale, shift, [-1]))
            weights = builder.emit(relax.op.nn.softmax(data, 1))
            out = builder.emit_output((norm, weights))
        builder.emit_func_output(out)
    mod = builder.finalize()
    names = relax_ops("nn.layer_norm nn.softmax")
    assert not calls_of(decompose.Decompose()(mod), names)
    built = convoy.build(mod, "llvm", precision="float32")
    for got, want in zip(built.session()(x), (0.5, 1), strict=True):
        expected = [[want], [want], [np.nan], [np.nan]]
        np.testing.assert_array_equal(np.array(got), np.array(expected, "float32"))


def test_other_networks_are_left_alone() -> None:
    mod = OPERATORS["max_all"].module()
    with tvm.target.Target("nvidia/nvidia-h100"):
        assert decompose.Decompose()(mod) is mod


def test_indices_outside_are_clipped_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    x, indices = np.arange(12, dtype="float32").reshape(4, 3), np.array([3, 7, -2, 0], "int64")
    table = relax.Var("x", relax.TensorType(x.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [table]):
        with builder.dataflow():
            taken = builder.emit(relax.op.take(table, relax.const(indices), 0, mode="fast"))
            out = builder.emit_output(taken)
        builder.emit_func_output(out)
    built = convoy.build(builder.get(), "llvm")
    np.testing.assert_array_equal(
        built.session()(x)[0], x[[3, 3, 2, 0]]
    )  # negative ones count from the end
    convoy.build(builder.get(), "cuda")
    assert "Fast mode" not in capfd.readouterr().err
