"""What networks since ResNet are built of, as small ONNX models: nothing here is a classic chain.

Each keeps its results in normal form, and its convolutions stay regions for the backends.
"""

from __future__ import annotations

import numpy as np
import pytest

from convoy.partition.subgraphs import find_subgraphs

from ..helpers.longest import longest

pytest.importorskip("onnx")

from .test_normalize import check_same
from .test_onnx import Model


def integers(m, *values):
    return m.tensor(np.array(values, "int64"))


def convolutions(normal) -> int:
    regions = longest(find_subgraphs(normal), lambda workload: True)
    return sum(region.workload.op == "fprop" for region in regions)


def squeeze_and_excite(m):
    """EfficientNet's block: expand, depthwise, gate by a pooled branch, project, add."""
    y = m.bn(m.conv("x", 16, 1))
    y = m.node("Mul", y, m.node("Sigmoid", y))
    y = m.bn(m.conv(y, 16, 5, groups=16))
    gate = m.conv(m.node("GlobalAveragePool", y), 4, 1, bias=True)
    gate = m.node("Sigmoid", m.conv(m.node("Relu", gate), 16, 1, bias=True))
    return m.node("Add", m.bn(m.conv(m.node("Mul", y, gate), 8, 1)), "x"), 5


def channel_shuffle(m):
    """ShuffleNet: half of the channels pass by, then the halves are interleaved."""
    halves = integers(m, 4, 4)
    m.nodes.append(_split("x", ["a", "b"], halves))
    m.channels.update(a=4, b=4)
    y = m.node("Relu", m.bn(m.conv(m.bn(m.conv("b", 4, 3, groups=4)), 4, 1)))
    y = m.node("Concat", "a", y, channels=8, axis=1)
    y = m.node("Reshape", y, integers(m, 2, 2, 4, 8, 8))
    y = m.node("Transpose", y, perm=[0, 2, 1, 3, 4])
    return m.conv(m.node("Reshape", y, integers(m, 2, 8, 8, 8), channels=8), 6, 1), 3


def dilated_pyramid(m):
    """DeepLab: branches of several dilations and a pooled one, resized to the others."""
    w = [m.tensor(m.rng.standard_normal((4, 8, 3, 3)).astype("float32")) for _ in range(2)]
    branches = [m.conv("x", 4, 1)]
    for dilation, filters in zip((2, 3), w, strict=True):
        spread = {"dilations": [dilation] * 2, "pads": [dilation] * 4}
        branches.append(m.node("Conv", "x", filters, channels=4, kernel_shape=[3, 3], **spread))
    pooled = m.conv(m.node("GlobalAveragePool", "x"), 4, 1)
    branches.append(m.node("Resize", pooled, "", "", integers(m, 2, 4, 8, 8), mode="nearest"))
    return m.conv(m.node("Relu", m.node("Concat", *branches, channels=16, axis=1)), 5, 1), 5


def feature_pyramid(m):
    """Two outputs; the coarse one goes up and into the fine one."""
    fine = m.node("Relu", m.conv("x", 8, 3, 2, bias=True))
    coarse = m.node("Relu", m.conv(fine, 12, 3, 2, bias=True))
    top = m.conv(coarse, 6, 1, bias=True)
    scales = m.tensor(np.array([1, 1, 2, 2], "float32"))
    up = m.node("Resize", top, "", scales, mode="nearest")
    mixed = m.node("Add", m.conv(fine, 6, 1, bias=True), up)
    return (m.conv(mixed, 6, 3), m.conv(top, 6, 3)), 6


def decoder(m):
    """U-Net: down, up by a transposed convolution, beside what was there before."""
    down = m.node("Relu", m.conv("x", 16, 3, 2))
    w = m.tensor(m.rng.standard_normal((16, 8, 2, 2)).astype("float32"))
    up = m.node("ConvTranspose", down, w, channels=8, kernel_shape=[2, 2], strides=[2, 2])
    return m.node("Tanh", m.conv(m.node("Concat", up, "x", channels=16, axis=1), 3, 3)), 2


def pixel_shuffle(m):
    """Super-resolution: channels become pixels between two convolutions, PReLU per channel."""
    slope = m.tensor(m.rng.uniform(0.1, 0.3, (8, 1, 1)).astype("float32"))
    y = m.conv(m.node("PRelu", m.conv("x", 8, 3, bias=True), slope), 16, 3)
    return m.conv(m.node("DepthToSpace", y, blocksize=2, mode="CRD", channels=4), 3, 5), 3


def filters_from_the_input(m):
    """A tracker: a patch of the features is the filter that is searched for in them."""
    features = m.node("Relu", m.conv("x", 8, 3))
    patch = m.node(
        "Slice", features, integers(m, 0, 0, 2, 2), integers(m, 2, 8, 5, 5),
        integers(m, 0, 1, 2, 3), channels=8,
    )  # fmt: skip
    return m.node("Conv", features, patch, channels=2, kernel_shape=[3, 3]), 2


def one_head_at_two_scales(m):
    """RetinaNet: the same filters twice, on maps of different size."""
    w = m.tensor(m.rng.standard_normal((5, 8, 3, 3)).astype("float32") * 0.2)
    half = m.node("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2])
    flat = []
    for x in ("x", half):
        y = m.node("Conv", x, w, channels=5, kernel_shape=[3, 3], pads=[1] * 4)
        flat.append(m.node("Reshape", y, integers(m, 2, 5, -1)))
    return m.node("Concat", *flat, axis=2), 2


def channels_last_block(m):
    """ConvNeXt: large depthwise filters, then products and a norm over the last axis."""
    y = m.node("Transpose", m.conv("x", 8, 7, groups=8), perm=[0, 2, 3, 1])
    ones, zeros = (m.tensor(np.full(8, v, "float32")) for v in (1, 0))
    y = m.node("LayerNormalization", y, ones, zeros, axis=-1)
    wide = m.tensor(m.rng.standard_normal((8, 32)).astype("float32") * 0.3)
    back = m.tensor(m.rng.standard_normal((32, 8)).astype("float32") * 0.2)
    y = m.node("MatMul", m.node("Relu", m.node("MatMul", y, wide)), back)
    return m.node("Add", m.node("Transpose", y, perm=[0, 3, 1, 2]), "x"), 1


def _split(x, outs, sizes):
    import onnx

    return onnx.helper.make_node("Split", [x, sizes], outs, axis=1)


@pytest.mark.parametrize(
    "architecture",
    [
        squeeze_and_excite, channel_shuffle, dilated_pyramid, feature_pyramid, decoder,
        pixel_shuffle, filters_from_the_input, one_head_at_two_scales, channels_last_block,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_architecture(architecture) -> None:
    m = Model(2, 8, 8, 8)
    outs, expected = architecture(m)
    mod = m.finish(*outs) if isinstance(outs, tuple) else m.finish(outs)
    assert convolutions(check_same(mod)) == expected
    check_same(mod, "float16", 2e-2)
