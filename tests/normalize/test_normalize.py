"""The normal form computes what the model did, in the layout and dtypes that it promises."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy import errors
from convoy.graph.expr import op_name, shape_of
from convoy.lower.executable import lower
from convoy.normalize.normal_form import normalize
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import (
    Net,
    count_ops,
    preact_resnet,
    random_inputs,
    relative_error,
    resnet_v1,
    run_llvm,
    to_numpy,
)


def run_normal(mod, *inputs):
    vm = relax.VirtualMachine(lower(mod, "llvm"), tvm.cpu())
    return to_numpy(vm["main"](*[tvm.runtime.tensor(i) for i in inputs]))


def check_same(mod, dtype="float32", tolerance=1e-5, **options):
    """Normalized and original outputs agree; gives back the normal form."""
    normal = normalize(mod, dtype=dtype, **options)
    inputs = random_inputs(mod)
    for got, want in zip(run_normal(normal, *inputs), run_llvm(mod, *inputs), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        assert relative_error(got, want) < tolerance
    return normal


def convs(mod):
    return [
        b.value
        for block in mod["main"].body.blocks
        for b in block.bindings
        if getattr(getattr(b.value, "op", None), "name", "") == "relax.nn.conv2d"
    ]


# -- random networks ---------------------------------------------------------------------------


@st.composite
def networks(draw):
    """Small networks: residual and pre-activation blocks, groups, odd padding, pools, concats."""
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    c = draw(st.sampled_from([3, 4, 8]))
    size = draw(st.integers(5, 9))
    net = Net((draw(st.integers(1, 2)), c, size, size + 1), layout, draw(st.integers(0, 99)))
    x = net.x
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(
                ["conv", "residual", "preact", "pool", "concat", "bn", "grouped", "squeeze", "act"]
            )
        )
        x = LAYERS[kind](net, x, draw)
    outputs = [x]
    if draw(st.booleans()):
        outputs.append(net.relu(net.bn(x)))  # two results that share a value
    if draw(st.booleans()):
        outputs[0] = net.head(x)
    return net.finish(*outputs)


def _conv(net, x, draw):
    filters = [(1, 1), (3, 3), (3, 1), (2, 2)]
    r, s = draw(st.sampled_from(filters if _extent(net, x) > 2 else filters[:1]))
    pad = tuple(draw(st.integers(0, 1)) for _ in range(4))
    y = net.conv(
        x, draw(st.sampled_from([4, 6, 8])), r, draw(st.integers(1, 2)), pad, s=s,
        dilation=draw(st.integers(1, 2)) if r == 3 and s == 3 and _extent(net, x) > 6 else 1,
        bias=draw(st.booleans()),
    )  # fmt: skip
    y = net.bn(y) if draw(st.booleans()) else y
    return net.relu(y) if draw(st.booleans()) else y


def _extent(net, x):
    sizes = [int(d) for d in x.ty.shape.values]
    return min(sizes[net.layout.index("H")], sizes[net.layout.index("W")])


def _residual(net, x, draw):
    y = net.relu(net.bn(net.conv(x, net.channels(x), 3)))
    y = net.bn(net.conv(y, net.channels(x), 1, bias=draw(st.booleans())))
    shortcut = net.bn(net.conv(x, net.channels(x), 1)) if draw(st.booleans()) else x
    return net.relu(net.add(y, shortcut) if draw(st.booleans()) else net.add(shortcut, y))


def _preact(net, x, draw):
    act = net.relu(net.bn(x))
    y = net.conv(act, net.channels(x), 3)
    return net.add(y, net.conv(act, net.channels(x), 1) if draw(st.booleans()) else x)


def _pool(net, x, draw):
    if _extent(net, x) < 3:
        return x
    return net.max_pool(x) if draw(st.booleans()) else net.avg_pool(x)


def _concat(net, x, draw):
    return net.concat(net.conv(x, 4, 1), x, net.relu(net.conv(x, 3, 3)))


def _grouped(net, x, draw):
    c = net.channels(x)
    groups = c if draw(st.booleans()) else next(g for g in (2, 3, 5, 7, 1) if c % g == 0)
    return net.bn(net.conv(x, c * draw(st.integers(1, 2)), 3, groups=groups))


def _squeeze(net, x, draw):
    """Squeeze and excitation: a gate of shape (n, c, 1, 1)."""
    axes = [net.layout.index("H"), net.layout.index("W")]
    gate = net.emit(op.mean(x, axes, keepdims=True))
    gate = net.emit(op.sigmoid(net.conv(gate, net.channels(x), 1, bias=True)))
    return net.emit(op.multiply(x, gate))


def _act(net, x, draw):
    function = draw(st.sampled_from([op.nn.silu, op.sigmoid, op.tanh, op.nn.gelu]))
    return net.emit(function(x))


LAYERS = {
    "conv": _conv, "residual": _residual, "preact": _preact, "pool": _pool, "concat": _concat,
    "bn": lambda net, x, draw: net.bn(x), "grouped": _grouped, "squeeze": _squeeze, "act": _act,
}  # fmt: skip


@given(networks())
@settings(max_examples=10)
def test_random_networks_float32(mod):
    normal = check_same(mod)
    for conv in convs(normal):
        assert (conv.attrs.data_layout, conv.attrs.kernel_layout) == ("NHWC", "OHWI")


@given(networks(), st.booleans())
@settings(max_examples=5)
def test_random_networks_float16(mod, pixels_as_channels):
    normal = check_same(mod, "float16", 2e-2, pixels_as_channels=pixels_as_channels)
    for conv in convs(normal):
        assert {str(a.ty.dtype) for a in conv.args} == {"float16"}


# -- whole networks ----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_preactivation_resnet50(layout):
    normal = normalize(preact_resnet(image=32, width=8, layout=layout), dtype="float32")
    ops = count_ops(normal)
    assert ops["relax.nn.conv2d"] == 53 and ops["relax.matmul"] == 1
    assert "relax.nn.batch_norm" not in ops
    # One entry transposition for NCHW; none where the model was channels-last.
    assert ops.get("relax.permute_dims", 0) == (1 if layout == "NCHW" else 0)
    # What cannot be folded: the input's batch norm, the pool's and the 16 sums'.
    assert ops["relax.multiply"] == 18


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_preactivation_resnet_computes_the_same(layout):
    check_same(preact_resnet(image=16, width=8, blocks=(2, 1), layout=layout))


def test_postactivation_resnet_folds_every_batch_norm():
    normal = check_same(resnet_v1(image=16, width=8, blocks=(1, 1)))
    assert "relax.multiply" not in count_ops(normal)


def test_float16_resnet():
    normal = check_same(preact_resnet(image=16, width=8, blocks=(1, 1)), "float16", 2e-2)
    ops = count_ops(normal)
    assert ops["relax.astype"] == 2  # in at the entry, out before the softmax


def test_prelu_of_several_slopes_in_bfloat16():
    """TVM has none: it is computed in float32, between results in bfloat16."""
    net = Net((2, 8, 6, 6))
    slopes = net.const(8, low=0.1, high=0.9)
    y = net.conv(net.emit(op.nn.prelu(net.conv(net.x, 8), slopes, axis=1)), 8)
    check_same(net.finish(y), dtype="bfloat16", tolerance=2e-2)


def test_bfloat16_resnet_has_one_cast_in_and_one_out():
    normal = normalize(preact_resnet(image=16, width=8, blocks=(1, 1)), dtype="bfloat16")
    assert count_ops(normal)["relax.astype"] == 2
    assert {str(a.ty.dtype) for conv in convs(normal) for a in conv.args} == {"bfloat16"}


# -- single rules ------------------------------------------------------------------------------


def test_scale_is_not_folded_into_a_shared_convolution():
    net = Net((1, 4, 6, 6))
    y = net.conv(net.x, 8, 3)
    normal = check_same(net.finish(net.bn(y), y))
    assert count_ops(normal)["relax.multiply"] == 1


def test_scale_after_bias_folds_into_weights_and_bias():
    net = Net((1, 4, 6, 6))
    y = net.bn(net.bias(net.conv(net.x, 8, 3)))
    normal = check_same(net.finish(net.bn(y)))
    assert count_ops(normal) == {"relax.permute_dims": 2, "relax.nn.conv2d": 1, "relax.add": 1}


def test_a_bias_is_added_to_what_is_spread_over_the_image():
    """As in the blocks of a diffusion network: the convolution takes the sum as its bias."""
    net = Net((1, 8, 6, 6))
    step = net.emit(op.matmul(net.emit(op.mean(net.x, [2, 3])), net.const(8, 16)))
    image = net.bias(net.conv(net.x, 16))
    y = net.emit(op.add(image, net.emit(op.reshape(step, (1, 16, 1, 1)))))
    mod = net.finish(net.emit(op.nn.relu(y)))
    assert count_ops(check_same(mod))["relax.add"] == 2
    workloads = [s.require_workload() for s in find_subgraphs(normalize(mod, dtype="float16"))]
    epilogues = [w.epilogue for w in workloads if w.r == 3]
    assert any(e.bias and e.activation == "relu" for e in epilogues)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-13)])
def test_batch_norm_with_variable_parameters(dtype, tolerance):
    bb = relax.BlockBuilder()
    shapes = {"x": (2, 4, 5, 5), "gamma": (4,), "beta": (4,), "mean": (4,), "variance": (4,)}
    params = [relax.Var(n, relax.TensorType(s, dtype)) for n, s in shapes.items()]
    with bb.function("main", params):
        with bb.dataflow():
            variance = bb.emit(op.abs(params[4]))
            bn = bb.emit(op.nn.batch_norm(*params[:4], variance, axis=1, training=False))
            y = bb.emit_output(bb.emit(relax.TupleGetItem(bn, 0)))
        bb.emit_func_output(y)
    normal = check_same(bb.get(), tolerance=tolerance)
    assert "relax.nn.batch_norm" not in count_ops(normal)


def test_unknown_operator_between_convolutions_stays_right():
    """An operator without a layout rule sees the model's layout."""
    net = Net((1, 4, 6, 6))
    y = net.conv(net.x, 8, 3)
    y = net.emit(op.cumsum(y, axis=1))
    check_same(net.finish(net.conv(y, 4, 3)))


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("keepdims", [True, False])
def test_reductions_over_any_axis(axis, keepdims):
    net = Net((2, 4, 6, 5))
    y = net.conv(net.x, 8, 3)
    y = net.emit(op.mean(y, [axis], keepdims=keepdims))
    check_same(net.finish(y))


def test_slices_splits_pads_and_softmax_follow_the_layout():
    net = Net((1, 8, 6, 6))
    y = net.conv(net.x, 8, 3)
    y = net.emit(op.nn.pad(y, [0, 0, 1, 2, 0, 1, 2, 0]))
    parts = net.emit(op.split(y, 2, axis=1))
    a, b = (net.emit(relax.TupleGetItem(parts, i)) for i in range(2))
    a = net.emit(op.strided_slice(a, [1, 2], [1, 0], [3, 5], [1, 2]))
    b = net.emit(op.nn.softmax(b, axis=1))
    normal = check_same(net.finish(a, b))
    assert count_ops(normal)["relax.permute_dims"] == 3  # one in, two results out


def test_arithmetic_of_bits_follows_the_layout():
    """As quantized networks round with shifts between their convolutions."""
    net = Net((1, 4, 6, 6))
    y = net.emit(op.astype(net.emit(op.multiply(net.conv(net.x, 8, 3), net.const())), "int32"))
    slope = relax.const(net.rng.integers(1, 99, (8, 1, 1)), "int32")
    y = net.emit(op.right_shift(net.emit(op.multiply(y, slope)), relax.const(2, "int32")))
    y = net.emit(op.bitwise_xor(net.emit(op.left_shift(y, slope)), relax.const(5, "int32")))
    y = net.conv(net.emit(op.astype(y, "float32")), 4, 3)
    normal = normalize(net.finish(y), dtype="float32")
    assert count_ops(normal)["relax.permute_dims"] == 2


@pytest.mark.parametrize("source", [(5, 7), (1, 5, 7), (1, 7)])
def test_a_factor_repeated_over_the_batch_is_one_matrix(source):
    """A linear layer over inputs that are not contiguous, as PyTorch exports it for a batch."""
    rows = source[-2]
    net = Net((1, 4, 3, rows))
    x = net.emit(op.reshape(net.x, (4, 3, rows)))
    weights = net.emit(op.broadcast_to(net.const(*source), (4, rows, 7)))
    normal = check_same(net.finish(net.emit(op.matmul(x, weights))))
    assert "relax.broadcast_to" not in count_ops(normal)
    (product,) = [v for v in values(normal) if op_name(v) == "relax.matmul"]
    assert shape_of(product) == (12, 7)


def test_a_repeated_factor_too_large_to_fold_is_found_behind_a_reshape():
    """Inputs of four axes: the two of the batch become one before the product."""
    net = Net((1, 160, 3, 64))
    x = net.emit(op.reshape(net.x, (160, 3, 64)))
    weights = net.emit(op.broadcast_to(net.const(64, 128), (2, 80, 64, 128)))
    weights = net.emit(op.reshape(weights, (160, 64, 128)))
    normal = check_same(net.finish(net.emit(op.matmul(x, weights))))
    assert "relax.broadcast_to" not in count_ops(normal)
    (gemm,) = [v for v in values(normal) if op_name(v) == "relax.matmul"]
    assert shape_of(gemm) == (480, 128)


def test_factors_that_differ_over_the_batch_stay():
    net = Net((1, 4, 3, 5))
    weights = net.emit(op.broadcast_to(net.const(2, 1, 5, 7), (2, 4, 5, 7)))
    normal = check_same(net.finish(net.emit(op.matmul(net.x, weights))))
    (product,) = [v for v in values(normal) if op_name(v) == "relax.matmul"]
    assert shape_of(product) == (2, 4, 3, 7)


def values(mod):
    return [b.value for block in mod["main"].body.blocks for b in block.bindings]


def test_explicit_permutations_cancel():
    """A channels-last model as exporters wrap it: permutations around every convolution."""
    net = Net((1, 6, 6, 4))  # the declared "NCHW" input is really NHWC
    x = net.x
    for _ in range(2):
        y = net.emit(op.permute_dims(x, [0, 3, 1, 2]))
        y = net.relu(net.conv(y, 4, 3))
        x = net.emit(op.permute_dims(y, [0, 2, 3, 1]))
    normal = check_same(net.finish(x))
    assert "relax.permute_dims" not in count_ops(normal)


def test_stem_channels_are_padded_only_in_16_bit():
    net = Net((1, 3, 8, 8))
    mod = net.finish(net.conv(net.x, 8, 3))
    assert convs(normalize(mod, dtype="float16"))[0].args[0].ty.shape.values[3] == 4
    assert convs(normalize(mod, dtype="float32"))[0].args[0].ty.shape.values[3] == 3
    assert convs(normalize(mod, pad_channels=1))[0].args[0].ty.shape.values[3] == 3


@given(
    r=st.integers(1, 7), s=st.integers(1, 7),
    stride=st.tuples(st.integers(2, 4), st.integers(2, 4)),
    pad=st.tuples(*[st.integers(0, 4)] * 4), h=st.integers(7, 14), w=st.integers(7, 14),
    c=st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=40)
def test_space_to_depth_is_exact(r, s, stride, pad, h, w, c):
    """On integers a strided convolution equals its folded form without any tolerance."""
    from convoy.normalize.channels import FoldedStride

    rng = np.random.default_rng(r * 7 + s)
    x = rng.integers(-4, 5, (1, h, w, c)).astype("float64")
    f = rng.integers(-4, 5, (2, r, s, c)).astype("float64")
    fold = FoldedStride((h, w), (r, s), stride, pad)
    (bh, bw), (sh, sw) = fold.blocks, stride
    blocks = np.zeros((1, bh * sh, bw * sw, c))
    keep = x[:, : bh * sh, : bw * sw]
    blocks[:, : keep.shape[1], : keep.shape[2]] = keep
    blocks = blocks.reshape(1, bh, sh, bw, sw, c).transpose(0, 1, 3, 2, 4, 5)
    blocks = blocks.reshape(1, bh, bw, sh * sw * c)
    want = direct_conv(x, f, stride, pad)
    got = direct_conv(blocks, fold.weights(f), (1, 1), fold.padding)
    np.testing.assert_array_equal(got, want)


def direct_conv(x, w, stride, pad):
    """NHWC x KRSC convolution in numpy."""
    x = np.pad(x, ((0, 0), (pad[0], pad[2]), (pad[1], pad[3]), (0, 0)))
    _, r, s, _ = w.shape
    windows = np.lib.stride_tricks.sliding_window_view(x, (r, s), axis=(1, 2))
    windows = windows[:, :: stride[0], :: stride[1]]
    return np.einsum("npqcrs,krsc->npqk", windows, w)


def test_seven_by_seven_stem_becomes_four_by_four():
    net = Net((1, 3, 32, 32))
    mod = net.finish(net.relu(net.conv(net.x, 8, 7, 2, 3)))
    normal = check_same(mod, "float16", 2e-2, pixels_as_channels=True)
    (conv,) = convs(normal)
    assert [int(d) for d in conv.args[1].ty.shape.values] == [8, 4, 4, 16]
    assert list(conv.attrs.strides) == [1, 1]


@pytest.mark.parametrize(
    ("size", "padding", "dilation", "filters"),
    [
        pytest.param((9, 9), 4, 1, [8, 9, 1, 32], id="9x9"),
        pytest.param((3, 5), (1, 0), 1, [8, 3, 1, 16], id="wide"),
        pytest.param((4, 4), 3, 2, [8, 4, 1, 16], id="dilated"),
    ],
)
def test_wide_stems_gather_columns(size, padding, dilation, filters):
    net, (r, s) = Net((2, 3, 14, 13)), size
    mod = net.finish(net.relu(net.conv(net.x, 8, r, 1, padding, dilation=dilation, s=s)))
    normal = check_same(mod, "float16", 2e-2, pixels_as_channels=True)
    (conv,) = convs(normal)
    assert [int(d) for d in conv.args[1].ty.shape.values] == filters


def test_global_average_pools_are_one_mean():
    for pool in ("adaptive", "window"):
        net = Net((1, 4, 6, 6))
        if pool == "adaptive":
            y = net.emit(op.nn.adaptive_avg_pool2d(net.x, (1, 1)))
        else:
            y = net.avg_pool(net.x, 6, 1)
        assert "relax.mean" in count_ops(check_same(net.finish(y)))


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("ceil_mode", [True, False])
def test_average_pools_with_padding(count_include_pad, ceil_mode):
    for layout in ("NCHW", "NHWC"):
        net = Net((1, 4, 8, 7), layout)
        y = net.emit(
            op.nn.avg_pool2d(
                net.x, (3, 2), (2, 2), (1, 0, 1, 1), ceil_mode=ceil_mode,
                count_include_pad=count_include_pad, layout=layout,
            )
        )  # fmt: skip
        check_same(net.finish(y))


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution(groups):
    net = Net((1, 4, 5, 6))
    w = net.const(4, 6 // groups, 3, 3)
    y = net.emit(
        op.nn.conv2d_transpose(
            net.x, w, strides=(2, 2), padding=(1, 0, 1, 1), output_padding=(1, 0), groups=groups
        )
    )
    mod = net.finish(net.relu(net.bn(y)))
    check_same(mod)
    check_same(mod, "float16", 2e-2)


@pytest.mark.parametrize("policy", ["float32", "float16"])
def test_a_transposed_convolution_of_integers_stays_one(policy):
    x = relax.Var("x", relax.TensorType((1, 2, 4, 4), "int32"))
    w = relax.Var("w", relax.TensorType((2, 3, 3, 3), "int32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            y = bb.emit(op.nn.conv2d_transpose(x, w, out_dtype="int32"))
            y = bb.emit_output(op.add(y, relax.const(1, "int32")))
        bb.emit_func_output(y)
    mod = normalize(bb.get(), dtype=policy)
    assert mod["main"].ret_ty.dtype == "int32"
    assert 'dtype="float' not in mod.script()


# -- parameters and refusals -------------------------------------------------------------------


def with_parameter():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 6, 6), "float32"))
    w = relax.Var("w", relax.TensorType((8, 4, 3, 3), "float32"))
    with bb.function("main", [x, w]):
        with bb.dataflow():
            y = bb.emit_output(op.nn.conv2d(x, w))
        bb.emit_func_output(y)
    return bb.get()


def test_parameters_bind_by_name_and_as_a_list():
    mod, rng = with_parameter(), np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((1, 4, 6, 6), (8, 4, 3, 3)))
    (want,) = run_llvm(mod, x, w)
    for params in ({"w": w}, {"main": [tvm.runtime.tensor(w)]}):
        normal = normalize(mod, params, "float32")
        assert [p.name for p in normal["main"].params] == ["x"]
        assert relative_error(run_normal(normal, x)[0], want) < 1e-6


def test_unbound_weights_stay_parameters():
    mod, rng = with_parameter(), np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((1, 4, 6, 6), (8, 4, 3, 3)))
    normal = normalize(mod, dtype="float16")
    (got,) = run_normal(normal, x, w)
    assert relative_error(got, run_llvm(mod, x, w)[0]) < 2e-2


def test_wrong_parameters_are_refused():
    with pytest.raises(errors.InvalidOption, match="weight"):
        normalize(with_parameter(), {"weight": np.zeros((8, 4, 3, 3))})
    with pytest.raises(errors.InvalidOption, match="shape"):
        normalize(with_parameter(), {"w": np.zeros((8, 4, 3, 1))})


def test_unknown_dtype_is_refused():
    with pytest.raises(errors.InvalidOption, match="int4"):
        normalize(with_parameter(), dtype="int4")


def test_symbolic_shape_is_refused():
    n = tvm.tirx.Var("n", "int64")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(op.nn.relu(x))
        bb.emit_func_output(y)
    with pytest.raises(errors.DynamicShape, match="x of shape"):
        normalize(bb.get())


@pytest.mark.parametrize("rows", [2**28, 2**27])
def test_tensors_beyond_32_bits_of_index_are_refused(rows):
    """The input has 8 elements a row, the result 16."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 8), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(op.concat([x, x], 1))
        bb.emit_func_output(y)
    name = "x" if rows == 2**28 else "gv"
    with pytest.raises(errors.InvalidOption, match=f"'{name}'.*2147483648 elements.*batch"):
        normalize(bb.get())


def test_blocked_layout_is_refused():
    net = Net((1, 4, 6, 6))
    y = net.emit(
        op.nn.conv2d(
            net.emit(op.reshape(net.x, (1, 1, 6, 6, 4))), net.const(1, 1, 3, 3, 4, 4),
            data_layout="NCHW4c", kernel_layout="OIHW4i4o",
        )
    )  # fmt: skip
    with pytest.raises(errors.UnsupportedLayout, match="NCHW4c"):
        normalize(net.finish(y))


def written_in_float16(cast_back: bool):
    """Convolution, bias and relu of float16 operands, of which the convolution says float32."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 6, 6), "float16"))
    w = relax.Var("w", relax.TensorType((8, 4, 3, 3), "float16"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(op.nn.conv2d(x, w, padding=1, out_dtype="float32"))
            y = builder.emit(op.astype(y, "float16")) if cast_back else y
            out = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("cast_back", [False, True])
def test_a_float32_result_of_float16_operands_stays_where_it_is_used(cast_back: bool) -> None:
    limit = 1e-3 if cast_back else 1e-6
    normal = check_same(written_in_float16(cast_back), "float16", limit)
    (conv,) = convs(normal)
    assert str(conv.ty.dtype) == ("float16" if cast_back else "float32")
    assert count_ops(normal).get("relax.astype", 0) == 0


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_cast_to_16_bit_rounds_in_float32(narrow: str, dtype: str) -> None:
    """Position biases, for one, may be computed in 16 bit in a network of float32."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.astype(x, narrow))
            y = builder.emit(op.add(y, relax.const(np.ones(6), narrow)))
            out = builder.emit_output(op.astype(y, "float32"))
        builder.emit_func_output(out)
    mod = builder.get()
    normal = normalize(mod, dtype=dtype)
    assert count_ops(normal).get("relax.astype", 0) == 2
    if (dtype, narrow) == ("float32", "float16"):
        inputs = random_inputs(mod)
        np.testing.assert_array_equal(run_llvm(normal, *inputs), run_llvm(mod, *inputs))
