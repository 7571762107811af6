"""Operators against onnx's reference implementation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import convoy  # noqa: E402
from convoy import errors  # noqa: E402
from convoy.onnx.ops import interpolation  # noqa: E402

from .support import check, model, run, values  # noqa: E402

node = onnx.helper.make_node
I64 = "int64"


@pytest.mark.parametrize(
    ("attrs", "plain"),
    [
        ({"output_shape": [9, 8], "strides": [2, 2]}, {"pads": [0, 1, 0, 0], "strides": [2, 2]}),
        ({"output_shape": [8, 8], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
         {"pads": [0, 0, 1, 1], "strides": [2, 2]}),
        ({"pads": [1, 0, 2, 1], "dilations": [2, 1], "output_padding": [0, 1], "strides": [1, 2]},
         None),
    ],
)  # fmt: skip
def test_transposed_convolutions(attrs: dict[str, Any], plain: dict[str, Any] | None) -> None:
    """A given output shape is the padding that leads to it."""
    feeds, weights = {"x": values(1, 2, 4, 4)}, {"w": values(2, 3, 3, 3, seed=1)}

    def call(attrs: dict[str, Any]) -> Any:
        return node("ConvTranspose", ["x", "w"], ["y"], **attrs)

    expected = check([call(plain or attrs)], feeds, weights=weights)
    (y,) = run(model([call(attrs)], feeds, weights=weights), feeds)
    np.testing.assert_allclose(y, expected[0], 1e-5, 1e-5)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    check([node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=mode)], {"x": values(2, 8, 3, 2)})


@pytest.mark.parametrize(
    ("image", "block", "attrs"),
    [
        ([5, 6], [2, 3], {}),
        ([7, 8], [3, 3], {"strides": [2, 3], "pads": [1, 0, 1, 2]}),
        ([9, 7], [2, 3], {"strides": [3, 1], "dilations": [2, 2], "pads": [0, 1, 2, 1]}),
        ([9], [4], {"strides": [2]}),
        ([4, 5, 4], [2, 3, 1], {"strides": [2, 1, 1], "pads": [0, 1, 0, 0, 1, 0]}),
    ],
)
def test_overlapping_blocks(image: list[int], block: list[int], attrs: dict[str, Any]) -> None:
    """In one, two and three dimensions, with pixels that no block covers."""
    rank = len(image)
    strides, dilations = (attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = attrs.get("pads", [0] * 2 * rank)
    room = [size + a + b for size, a, b in zip(image, pads[:rank], pads[rank:], strict=True)]
    counts = [
        (r - d * (b - 1) - 1) // s + 1
        for r, d, b, s in zip(room, dilations, block, strides, strict=True)
    ]
    feeds = {"x": values(2, 3 * math.prod(block), math.prod(counts))}
    sizes = {"image": np.array(image, I64), "block": np.array(block, I64)}
    check([node("Col2Im", ["x", "image", "block"], ["y"], **attrs)], feeds, weights=sizes)


@pytest.mark.parametrize("version", [14, 15])
def test_batch_norm_of_a_batch(version: int) -> None:
    """The running statistics move as they are defined to."""
    feeds = {"x": values(3, 4, 5)} | {n: values(4, seed=i) + 2 for i, n in enumerate("sbmv")}
    call = node(
        "BatchNormalization", ["x", *"sbmv"], ["y", "mean", "var"], training_mode=1, momentum=0.7
    )
    check([call], feeds, ("y", "mean", "var"), opset=version)


def test_batch_norm_of_a_batch_before_opset_14() -> None:
    """As PyTorch exports filters that a batch norm standardizes; they are known."""
    feeds = {"x": values(3, 4, 5)} | {n: values(4, seed=i) + 2 for i, n in enumerate("sbmv")}
    names = ["y", "mean", "var", "saved_mean", "saved_var"]
    call = node("BatchNormalization", ["x", *"sbmv"], names, momentum=0.7)
    later = node("BatchNormalization", ["x", *"sbmv"], names[:3], training_mode=1, momentum=0.7)
    expected = check([later], feeds, names[:3], opset=15)
    expected += [feeds["x"].mean((0, 2)), feeds["x"].var((0, 2))]
    for got, want in zip(run(model([call], feeds, names, opset=13), feeds), expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("count", [1, 0])
@pytest.mark.parametrize("ceil", [0, 1])
def test_average_pools_at_the_edge(count: int, ceil: int) -> None:
    attrs = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    call = node("AveragePool", ["x"], ["y"], count_include_pad=count, ceil_mode=ceil, **attrs)
    check([call], {"x": values(1, 2, 7, 6)}, opset=19)


@pytest.mark.parametrize("version", [9, 13])
def test_softmax_of_several_axes(version: int) -> None:
    """Before opset 13 over all axes from the given one on."""
    call = node("Softmax", ["x"], ["y"], axis=1)
    x = values(2, 3, 4)
    axes = (1, 2) if version < 13 else (1,)
    powers = np.exp(x)
    (y,) = run(model([call], {"x": x}, opset=version), {"x": x})
    np.testing.assert_allclose(y, powers / powers.sum(axes, keepdims=True), 1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks(kind: str, direction: str) -> None:
    """Against a loop over each sequence of its own length, in numpy; a sequence without a step
    ends with zeros, as onnxruntime has it."""
    steps, batch, size, hidden = 3, 3, 3, 4
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    both = 2 if direction == "bidirectional" else 1
    feeds = {"x": values(steps, batch, size), "h": values(both, batch, hidden, seed=1)}
    weights = {
        "w": values(both, gates * hidden, size, seed=2),
        "r": values(both, gates * hidden, hidden, seed=3),
        "b": values(both, 2 * gates * hidden, seed=4),
        "n": np.array([3, 2, 0], "int32"),
    }
    inputs = ["x", "w", "r", "b", "n", "h"]
    outputs = ["y", "last"] + ["cell"] * (kind == "LSTM")
    call = node(kind, inputs, outputs, hidden_size=hidden, direction=direction)
    got = run(model([call], feeds, outputs, weights), feeds)
    expected = _recurrent(kind, direction, **feeds, **weights)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)


def _recurrent(kind: str, direction: str, x: Any, h: Any, w: Any, r: Any, b: Any, n: Any) -> Any:
    steps, batch, _ = x.shape
    both, hidden = r.shape[0], r.shape[2]
    y = np.zeros((steps, both, batch, hidden))
    last, cells = np.zeros((both, batch, hidden)), np.zeros((both, batch, hidden))

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    for d in range(both):
        half = len(b[d]) // 2
        wb, rb = b[d][:half], b[d][half:]
        for i in range(batch):
            state, cell = h[d, i].astype("float64") * (n[i] > 0), np.zeros(hidden)
            order = range(n[i])
            for t in reversed(order) if direction == "reverse" or d else order:
                a, c = w[d] @ x[t, i] + wb, r[d] @ state + rb
                if kind == "RNN":
                    state = np.tanh(a + c)
                elif kind == "LSTM":
                    gi, go, gf, gc = np.split(a + c, 4)
                    cell = sigmoid(gf) * cell + sigmoid(gi) * np.tanh(gc)
                    state = sigmoid(go) * np.tanh(cell)
                else:
                    z, reset = np.split(sigmoid((a + c)[: 2 * hidden]), 2)
                    rh = r[d][2 * hidden :] @ (reset * state) + rb[2 * hidden :]
                    state = (1 - z) * np.tanh(a[2 * hidden :] + rh) + z * state
                y[t, d, i] = state
            last[d, i], cells[d, i] = state, cell
    return (y, last, cells) if kind == "LSTM" else (y, last)


def test_a_clip_holds_for_gates_and_not_for_the_cell_state() -> None:
    """As onnxruntime has it."""
    feeds = {"x": np.full((1, 1, 1), 9, "float32"), "c": np.full((1, 1, 1), 3, "float32")}
    weights = {"w": np.ones((1, 4, 1), "float32"), "r": np.ones((1, 4, 1), "float32")}
    outputs = ["y", "last", "cell"]
    call = node("LSTM", ["x", "w", "r", "", "", "", "c"], outputs, hidden_size=1, clip=0.5)
    _, last, cell = run(model([call], feeds, outputs, weights), feeds)
    gate = 1 / (1 + np.exp(-0.5))
    expected = gate * 3 + gate * np.tanh(0.5)
    np.testing.assert_allclose(cell.item(), expected, 1e-5)
    np.testing.assert_allclose(last.item(), gate * np.tanh(expected), 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_logarithm_of_one_exponential_is_its_exponent(dtype: str) -> None:
    """Of a large number too, and of a negative integer."""
    x = np.array([-3, 200], dtype)
    call = node("ReduceLogSumExp", ["x"], ["y"], noop_with_empty_axes=1)
    (y,) = run(model([call], {"x": x}), {"x": x})
    np.testing.assert_array_equal(y, x)


def test_quantized_networks() -> None:
    """Weights quantized by output channel, data as a whole: QDQ, and the integer operators."""
    x = values(1, 3, 6, 6)
    weights = {
        "w": np.random.default_rng(1).integers(-127, 127, (4, 3, 3, 3)).astype("int8"),
        "ws": np.array([0.01, 0.02, 0.005, 0.03], "float32"),
        "wz": np.zeros(4, "int8"),
        "xs": np.array(0.02, "float32"), "xz": np.array(120, "uint8"),
        "ys": np.array(0.05, "float32"), "yz": np.array(10, "uint8"),
        "b": np.array([100, -200, 300, 0], "int32"),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0),
        node("Conv", ["d", "dw"], ["c"], pads=[1, 1, 1, 1]),
        node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"]),
        node("ConvInteger", ["q", "w", "xz"], ["i"]),
    ]
    check(nodes, {"x": x}, ("c", "y", "i"), weights, opset=19, tolerance=1e-4)


def test_dynamic_quantization() -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["y"]),
    ]
    w = np.random.default_rng(1).integers(-127, 127, (8, 5)).astype("int8")
    check(nodes, {"x": values(4, 8)}, ("q", "s", "z", "y"), {"w": w})


def _branch(op: str) -> Any:
    out = [onnx.helper.make_tensor_value_info("r", 1, [2, 3])]
    return onnx.helper.make_graph([node(op, ["x"], ["r"])], "branch", [], out)


@pytest.mark.parametrize("known", [True, False])
def test_branches(known: bool) -> None:
    flag = np.array(False)
    call = node("If", ["flag"], ["y"], then_branch=_branch("Abs"), else_branch=_branch("Neg"))
    feeds = {"x": values(2, 3)} | ({} if known else {"flag": flag})
    check([call], feeds, weights={"flag": flag} if known else {})


def test_loops() -> None:
    """What is carried from turn to turn, and a result of each turn."""
    value = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [
            node("Cast", ["i"], ["f"], to=1),
            node("Add", ["v", "f"], ["w"]),
            node("Mul", ["w", "x"], ["s"]),
            node("Identity", ["c"], ["d"]),
        ],
        "body",
        [value("i", 7, []), value("c", 9, []), value("v", 1, [3])],
        [value("d", 9, []), value("w", 1, [3]), value("s", 1, [2, 3])],
    )
    call = node("Loop", ["turns", "go", "start"], ["last", "all"], body=body)
    feeds = {"x": values(2, 3), "start": values(3)}
    weights = {"turns": np.array(4), "go": np.array(True)}
    last, each = run(model([call], feeds, ("last", "all"), weights), feeds)
    carried = [feeds["start"] + sum(range(turn + 1)) for turn in range(4)]
    np.testing.assert_allclose(last, carried[-1], 1e-6)
    np.testing.assert_allclose(each, [feeds["x"] * v for v in carried], 1e-6)


def test_a_graph_for_each_element_of_a_sequence() -> None:
    value = onnx.helper.make_value_info
    nothing = onnx.TypeProto()
    body = onnx.helper.make_graph(
        [node("Mul", ["a", "b"], ["m"]), node("Add", ["m", "x"], ["s"])],
        "body",
        [value("a", nothing), value("b", nothing)],
        [value("s", nothing), value("m", nothing)],
    )
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        node("SequenceMap", ["rows", "scale"], ["sums", "products"], body=body),
        node("ConcatFromSequence", ["sums"], ["y"], axis=0, new_axis=1),
        node("ConcatFromSequence", ["products"], ["z"], axis=0, new_axis=1),
    ]
    feeds, weights = {"x": values(3, 4)}, {"scale": values(4, seed=1)}
    y, z = run(model(nodes, feeds, ("y", "z"), weights), feeds)
    np.testing.assert_allclose(z, feeds["x"] * weights["scale"], 1e-6)
    np.testing.assert_allclose(y, z[:, None] + feeds["x"], 1e-6)


def test_shapes_that_are_computed_are_folded() -> None:
    """Shape, Gather, Concat, Reshape: what exporters write for a flatten."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["n"]),
        node("Unsqueeze", ["n", "zero"], ["row"]),
        node("Concat", ["row", "rest"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["y"]),
        node("Shape", ["y"], ["s"]),
    ]
    weights = {"first": np.array(0), "zero": np.array([0]), "rest": np.array([-1])}
    check(nodes, {"x": values(2, 3, 4)}, ("y", "s"), weights)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scale", [2.0, 0.6])
def test_resizes(mode: str, scale: float) -> None:
    call = node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    weights = {"scales": np.array([1, 1, scale, 1.5], "float32")}
    check([call], {"x": values(1, 2, 5, 6)}, weights=weights, tolerance=1e-4)


@pytest.mark.parametrize(
    ("attrs", "scale", "expected"),
    [
        ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, 1.37,
         np.arange(9) * 6 / 8),
        ({"mode": "nearest", "nearest_mode": "floor"}, 1 / 3, [1, 4]),
        ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
          "nearest_mode": "ceil"}, 1.4, [0, 1, 2, 3, 3, 4, 5, 5, 6]),
    ],
)  # fmt: skip
def test_coordinates_of_resizes(attrs: dict[str, Any], scale: float, expected: Any) -> None:
    """As onnxruntime has them: corners aligned by sizes, and all of them in float32."""
    call = node("Resize", ["x", "", "scales"], ["y"], **attrs)
    feeds, weights = {"x": np.arange(7, dtype="float32")}, {"scales": np.array([scale], "float32")}
    (y,) = run(model([call], feeds, weights=weights), feeds)
    np.testing.assert_allclose(y, expected, 1e-5)


@pytest.mark.parametrize(
    ("where", "rounding", "size", "out", "row", "expected"),
    [
        ("asymmetric", "round_prefer_ceil", 10, 12, 9, 8),  # 7.4999995
        ("asymmetric", "round_prefer_floor", 33, 78, 13, 5),  # 5.5000005
        ("half_pixel_symmetric", "round_prefer_ceil", 24, 52, 32, 15),  # 14.499999
        ("half_pixel", "round_prefer_floor", 24, 28, 17, 14),  # 14.500001
    ],
)
def test_places_near_the_middle_of_two_elements(
    where: str, rounding: str, size: int, out: int, row: int, expected: int
) -> None:
    """They count as the middle, as in onnxruntime, whose results these are."""
    attrs = {"coordinate_transformation_mode": where, "nearest_mode": rounding, "mode": "nearest"}
    axis = interpolation.Axis(size, out, out / size, (0, 1), attrs)
    matrix, _ = interpolation.weights(axis)
    assert matrix[row].argmax() == expected


@pytest.mark.parametrize(
    ("scale", "version", "expected"),
    [
        (0.7, 18, [0, 2, 3, 4, 6, 7, 9]),  # 10 * 0.7 is less than 7 in float64
        (0.6, 10, [0, 2, 4, 5, 7, 9]),  # upwards, in opset 10 and where images shrink
        (1.05, 18, np.arange(10)),  # of the same size: a copy
    ],
)
def test_sizes_of_resizes(scale: float, version: int, expected: Any) -> None:
    """As onnxruntime and PyTorch have them."""
    call = node("Resize", ["x", "scales"] if version == 10 else ["x", "", "scales"], ["y"])
    feeds, by = {"x": np.arange(10, dtype="float32")}, {"scales": np.array([scale], "float32")}
    (y,) = run(model([call], feeds, weights=by, opset=version), feeds)
    np.testing.assert_array_equal(y, expected)


def test_rounding_is_one_operator() -> None:
    """Quantized networks round at every step."""
    x = np.array([0.5, 1.5, -2.5, -0.3, 0.49999997, np.inf, -np.inf, np.nan, 1e9, -0.0], "float32")
    network = model([node("Round", ["x"], ["y"])], {"x": x})
    bindings = convoy.from_onnx(network)["main"].body.blocks[0].bindings
    assert [b.value.op.name for b in bindings if hasattr(b.value, "op")] == ["relax.round"]
    (y,) = run(network, {"x": x})
    np.testing.assert_array_equal(y, np.round(x))
    np.testing.assert_array_equal(np.signbit(y), np.signbit(np.round(x)))


def test_signs_and_remainders_of_extremes() -> None:
    feeds = {
        "a": np.array([np.nan, -0.5, np.inf, 3, -3, 5.25], "float32"),
        "b": np.array([1, 2, 2, np.inf, -np.inf, -2], "float32"),
    }
    nodes = [node("Sign", ["a"], ["y"]), node("Mod", ["a", "b"], ["z"], fmod=1)]
    y, z = run(model(nodes, feeds, ("y", "z")), feeds)
    np.testing.assert_array_equal(y, np.sign(feeds["a"]))
    np.testing.assert_array_equal(z, [np.nan, -0.5, np.nan, 3, -3, 1.25])


def test_reshapes_of_empty_tensors() -> None:
    """A size of 0 is one of no elements, not that of the data."""
    feeds, weights = {"x": np.zeros((0, 3), "float32")}, {"s": np.array([3, 0])}
    (y,) = run(model([node("Reshape", ["x", "s"], ["y"], allowzero=1)], feeds, weights=weights),
               feeds)  # fmt: skip
    assert y.shape == (3, 0)


def test_the_largest_none_are_empty() -> None:
    feeds, k = {"x": values(3, 4)}, np.zeros(1, I64)
    network = model([node("TopK", ["x", "k"], ["y", "i"])], feeds, ("y", "i"), {"k": k})
    got, places = run(network, feeds)
    assert (got.shape, got.dtype, places.shape, places.dtype) == ((3, 0), "float32", (3, 0), I64)


def test_layers_of_no_rows() -> None:
    check([node("MatMul", ["x", "w"], ["y"])], {"x": values(4, 0, 5)}, weights={"w": values(5, 3)})


def test_empty_constants_are_results() -> None:
    """TVM folds zeros, and a module with an empty constant does not load."""
    feeds, weights = {"x": values(2)}, {"e": np.zeros((0, 3), "float32")}
    y, z = run(model([node("Abs", ["x"], ["z"]), node("Abs", ["e"], ["y"])], feeds, ("y", "z"),
                     weights), feeds)  # fmt: skip
    assert y.shape == (0, 3)
    np.testing.assert_array_equal(z, np.abs(feeds["x"]))


@pytest.mark.parametrize("equation", ["bcxd,bcyd->bcxy", "bcxd,bcyd", "axbc,yaxc"])
def test_products_that_broadcast_along_an_axis_of_one(equation: str) -> None:
    a, b = values(1, 2, 3, 4), values(1, 1, 5, 4, seed=1)
    if equation[0] == "a":
        a, b = values(2, 1, 3, 4), values(5, 2, 6, 4)
    check([node("Einsum", ["a", "b"], ["y"], equation=equation)], {"a": a, "b": b})


EQUATIONS: dict[str, list[tuple[int, ...]]] = {
    "ij,jk": [(3, 4), (4, 5)],
    "Ab , bC": [(2, 3), (3, 4)],
    "...ij,...jk->...ik": [(2, 1, 3, 4), (5, 4, 6)],
    "...a,b...->ab...": [(2, 3, 4), (5, 2, 3)],
    "ij...,jk->ik...": [(3, 4, 2), (4, 5)],
    "i...->...": [(2, 3, 4)],
    "iji->j": [(3, 4, 3)],
    "bjj,jk->kb": [(2, 3, 3), (3, 4)],
    "iii": [(3, 3, 3)],
    "ij,ij->ij": [(3, 1), (3, 4)],
    "ij,i->ji": [(1, 4), (1,)],
    ",i->i": [(), (3,)],
    "ij,j->i": [(3, 0), (0,)],
    "ij,kj,il,kl->ik": [(3, 4), (5, 4), (3, 6), (5, 6)],
    "bxyd,xyd,d->bxy": [(2, 3, 4, 5), (3, 4, 5), (5,)],
    "bn,anm,bm->ba": [(4, 5), (6, 5, 7), (4, 7)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equations(equation: str) -> None:
    feeds = {f"x{i}": values(*shape, seed=i) for i, shape in enumerate(EQUATIONS[equation])}
    check([node("Einsum", list(feeds), ["y"], equation=equation)], feeds)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk,kl", "2 operands; expected one term"),
        ("i1,1k", "one term of letters"),
        ("ij,k", r"operands of \[2, 2\] axes"),
        ("ij,jk->iz", "stand on the left"),
        ("ij,jk->ii", "different letters"),
        ("ij,kj->ik", "'j' of sizes 4 and 5; expected equal sizes"),
    ],
)
def test_equations_that_do_not_fit(equation: str, message: str) -> None:
    feeds = {"a": values(3, 4), "b": values(4, 5)}
    with pytest.raises(errors.InvalidModel, match=message):
        run(model([node("Einsum", ["a", "b"], ["y"], equation=equation)], feeds), feeds)


@pytest.mark.parametrize("length", [None, 7, 10])
def test_inverse_of_a_one_sided_transform(length: int | None) -> None:
    x = values(2, 6, 3, 2)
    call = node("DFT", ["x", "n" if length else "", "axis"], ["y"], onesided=1, inverse=1)
    weights = {"axis": np.array(1)} | ({"n": np.array(length)} if length else {})
    (y,) = run(model([call], {"x": x}, weights=weights, opset=20), {"x": x})
    expected = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, 1)
    np.testing.assert_allclose(y[..., 0], expected, 1e-4, 1e-5)


def test_unpooling_to_a_given_size() -> None:
    """Indices of a pooling count in its input, which has the size that is given."""
    x = values(1, 2, 5, 5)
    nodes = [
        node("MaxPool", ["x"], ["best", "places"], kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxUnpool", ["best", "places", "size"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    weights = {"size": np.array(x.shape)}
    best, y = run(model(nodes, {"x": x}, ("best", "y"), weights), {"x": x})
    np.testing.assert_array_equal(y[y != 0], x[y != 0])
    assert set(y[y != 0]) == set(best.reshape(-1))


@pytest.mark.parametrize("dtype", ["int16", "uint16", "uint32", "bfloat16"])
def test_the_largest_of_small_dtypes(dtype: str) -> None:
    x = np.random.default_rng(0).permutation(20).reshape(2, 10)
    feeds = {"x": x.astype(onnx.helper.tensor_dtype_to_np_dtype(16) if "b" in dtype else dtype)}
    call = node("TopK", ["x", "k"], ["y", "places"])
    y, places = run(model([call], feeds, ("y", "places"), {"k": np.array([3])}), feeds)
    assert y.dtype == feeds["x"].dtype
    np.testing.assert_array_equal(places, np.argsort(-x)[:, :3])
    np.testing.assert_array_equal(y.astype(int), -np.sort(-x)[:, :3])


def test_weights_of_eight_bit_floats() -> None:
    import ml_dtypes

    x = values(2, 3)
    nodes = [
        node("DequantizeLinear", ["w", "scale"], ["d"]),
        node("MatMul", ["x", "d"], ["y"]),
    ]
    w = values(3, 4, seed=1).astype(ml_dtypes.float8_e4m3fn)
    weights = {"w": w, "scale": np.array(0.5, "float32")}
    (y,) = run(model(nodes, {"x": x}, weights=weights, opset=21), {"x": x})
    np.testing.assert_allclose(y, x @ (w.astype("float32") * 0.5), 1e-5)


def test_operators_that_are_refused_by_name() -> None:
    x = values(2, 3)
    for call, error in [
        (node("NonZero", ["x"], ["y"]), errors.UnsupportedOp),
        (node("RandomNormalLike", ["x"], ["y"]), errors.UnsupportedOp),
        (node("Frobnicate", ["x"], ["y"]), errors.UnsupportedOp),
        (node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT8E4M3FN), errors.UnsupportedDtype),
    ]:
        with pytest.raises(error, match=call.op_type):
            run(model([call], {"x": x}), {"x": x})
