"""The float64 references against an independent convolution, and samples against the whole."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.ir.depth import Depth
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure import dtypes, reference


def conv(op: str = "fprop", **changes: object) -> Workload:
    fields: dict = {"op": op, "n": 2, "h": 6, "w": 5, "c": 4, "k": 6, "r": 3, "s": 2}
    return Workload(**{**fields, "padding": (1, 0, 1, 1), **changes})


def operands(workload: Workload, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = workload.operand_shapes()
    return {n: rng.uniform(-1, 1, shape) for n, shape, _ in shapes[: -workload.num_outputs]}


def by_loops(workload: Workload, given: dict[str, np.ndarray]) -> np.ndarray:
    """The linear part, product by product from the definition of the forward convolution."""
    wl, cg, kg = workload, workload.c // workload.groups, workload.k // workload.groups
    x = np.zeros((wl.n, wl.h, wl.w, wl.c))
    y = np.zeros((wl.n, wl.p, wl.q, wl.k))
    f = np.zeros((wl.k, wl.r, wl.s, cg))
    for p, q, r, s in itertools.product(*map(range, (wl.p, wl.q, wl.r, wl.s))):
        h = p * wl.stride[0] - wl.padding[0] + r * wl.dilation[0]
        w = q * wl.stride[1] - wl.padding[1] + s * wl.dilation[1]
        if not (0 <= h < wl.h and 0 <= w < wl.w):
            continue
        for g in range(wl.groups):
            cs, ks = slice(g * cg, (g + 1) * cg), slice(g * kg, (g + 1) * kg)
            if wl.op == "fprop":
                y[:, p, q, ks] += given["x"][:, h, w, cs] @ given["w"][ks, r, s].T
            elif wl.op == "dgrad":
                x[:, h, w, cs] += given["dy"][:, p, q, ks] @ given["w"][ks, r, s]
            else:
                f[ks, r, s] += given["dy"][:, p, q, ks].T @ given["x"][:, h, w, cs]
    return {"fprop": y, "dgrad": x, "wgrad": f}[wl.op]


CASES = [
    {},
    {"stride": (2, 3)},
    {"dilation": (2, 1)},
    {"groups": 2},
    {"c": 4, "k": 4, "groups": 4},
]


@pytest.mark.parametrize("op", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("changes", CASES, ids=str)
def test_whole_reference(op: str, changes: dict) -> None:
    workload = conv(op, **changes)
    given = operands(workload)
    (got,) = reference.full(workload, given)
    np.testing.assert_allclose(got, by_loops(workload, given), atol=1e-12)


@pytest.mark.parametrize("op", ["fprop", "dgrad"])
@pytest.mark.parametrize("changes", [{}, {"groups": 2, "stride": (2, 1)}], ids=str)
def test_volumes_are_sums_over_planes(op: str, changes: dict) -> None:
    depth = Depth(5, 2, stride=2, padding=(1, 0), dilation=2)
    workload, plane = conv(op, depth=depth, **changes), conv(op, **changes)
    given = operands(workload)
    (got,) = reference.full(workload, given)
    want = np.zeros((workload.n, depth.o if op == "fprop" else depth.d, *got.shape[2:]))
    for o, t in itertools.product(range(depth.o), range(depth.t)):
        d = o * depth.stride - depth.padding[0] + t * depth.dilation
        if not 0 <= d < depth.d:
            continue
        (read, at), out = (("x", d), o) if op == "fprop" else (("dy", o), d)
        slices = {read: given[read][:, at], "w": given["w"][:, t]}
        want[:, out] += by_loops(plane, slices)
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_epilogue_in_its_order() -> None:
    plain = conv()
    given = operands(plain)
    base = by_loops(plain, given)
    epilogue = Epilogue(residual=True, bias=True, activation="clip", clip_max=0.7, affine_relu=True)
    workload = conv(epilogue=epilogue)
    full = {**operands(workload, 1), **given}
    y = np.clip(base + full["residual"] + full["bias"], 0, 0.7)
    got = reference.full(workload, full)
    np.testing.assert_allclose(got[0], y, atol=1e-12)
    np.testing.assert_allclose(got[1], np.maximum(full["scale"] * y + full["shift"], 0))


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("relu", lambda v: np.where(v > 0, v, 0)),
        ("sigmoid", lambda v: 1 / (1 + np.exp(-v))),
        ("silu", lambda v: v / (1 + np.exp(-v))),
    ],
)
def test_activations(activation: str, formula) -> None:
    given = operands(conv())
    workload = conv(epilogue=Epilogue(activation=activation))
    (got,) = reference.full(workload, given)
    np.testing.assert_allclose(got, formula(by_loops(conv(), given)), atol=1e-12)


def test_an_operand_repeats_its_block() -> None:
    operand = reference.Operand(np.array([1.0, 2.0, 3.0]))
    assert operand(np.array([0, 4, 302])).tolist() == [1.0, 2.0, 3.0]
    starts = np.array([0, 2, 7])
    assert operand.rows(starts, 5).tolist() == operand(starts[:, None] + np.arange(5)).tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("place", [0, 5, 70_000, 199_999])
def test_a_nan_among_many(dtype: str, place: int) -> None:
    values = np.random.default_rng(0).standard_normal(200_000)
    values[:3] = np.inf, -np.inf, 0.0
    stored = dtypes.encode(values, dtype)
    assert not dtypes.any_nan(stored, dtype)
    stored.view(np.uint8).reshape(200_000, -1)[place] = 0xFF  # what outputs are filled with
    assert dtypes.any_nan(stored, dtype)


@settings(max_examples=40)
@given(data=st.data())
def test_samples_are_elements_of_the_whole(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 3))
    r, s = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    workload = conv(
        data.draw(st.sampled_from(["fprop", "dgrad", "wgrad"])),
        n=data.draw(st.integers(1, 2)),
        h=data.draw(st.integers(r, 7)),
        w=data.draw(st.integers(s, 7)),
        c=groups * data.draw(st.sampled_from([1, 2, 17])),
        k=groups * data.draw(st.sampled_from([1, 3, 18])),
        r=r,
        s=s,
        groups=groups,
        stride=(data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))),
        padding=tuple(data.draw(st.integers(0, 2)) for _ in range(4)),
    )
    if workload.op != "wgrad" and data.draw(st.booleans()):
        depth = Depth(data.draw(st.integers(2, 4)), 2, padding=(1, 0))
        workload = dataclasses.replace(workload, depth=depth)
    given_operands = operands(workload, 3)
    whole = reference.full(workload, given_operands)[0].reshape(-1)
    functions = {name: reference.Operand(array) for name, array in given_operands.items()}
    (sample,) = reference.sample(workload, functions, np.random.default_rng(5))
    index = sample.starts[:, None] + np.arange(sample.run)
    assert index.min() >= 0 and index.max() < whole.size
    np.testing.assert_allclose(sample.values, whole[index], atol=1e-12)


@pytest.mark.parametrize("sizes", [(1, 5, 7, 2), (6, 40, 3, 3), (9, 16, 33, 20)])
def test_each_matrix_of_a_batch_with_its_own(sizes: tuple[int, int, int, int]) -> None:
    rows, k, c, batch = sizes
    workload = Workload("matmul", rows, 1, 1, batch * c, batch * k, 1, 1, groups=batch)
    of = operands(workload)
    (whole,) = reference.full(workload, of)
    np.testing.assert_allclose(whole, np.einsum("grc,gkc->grk", of["x"], of["w"]), atol=1e-12)
    functions = {name: reference.Operand(array) for name, array in of.items()}
    (sample,) = reference.sample(workload, functions, np.random.default_rng(5))
    index = sample.starts[:, None] + np.arange(sample.run)
    assert index.min() >= 0 and index.max() == whole.size - 1
    np.testing.assert_allclose(sample.values, whole.reshape(-1)[index], atol=1e-12)


def test_samples_are_many_and_spread() -> None:
    workload = Workload("fprop", 32, 56, 56, 64, 256, 1, 1)
    rng = np.random.default_rng(0)
    block = rng.uniform(-1, 1, 1009)
    functions = {name: reference.Operand(block) for name in ("x", "w")}
    (sample,) = reference.sample(workload, functions, rng)
    assert sample.values.size >= reference.SAMPLES
    last = 32 * 56 * 56 * 256 - 1
    assert 0 in sample.starts and last in sample.starts + sample.run - 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtypes_round_to_nearest_even(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 10.0**e, 1000) for e in range(-3, 4)])
    values = values.astype(np.float32).astype(np.float64)
    exact = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    expected = values.astype(np.float32).astype(exact).astype(np.float64)
    got = dtypes.decode(dtypes.encode(values, dtype), dtype)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_poisoned_memory_is_nan(dtype: str) -> None:
    stored = np.full(64, 0xFF, np.uint8).view(dtypes.STORAGE[dtype])
    assert np.isnan(dtypes.decode(stored, dtype)).all()
