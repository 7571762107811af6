"""Calls as earlier versions wrote them: files of 0.18 in which the one call is put back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from convoy import relay

Node = dict[str, Any]


class File:
    """A saved call of one operator, to be edited."""

    def __init__(self, call: relay.Expr, version: str) -> None:
        self.data = json.loads(
            relay.save_json(relay.Function(relay.analysis.free_vars(call), call))
        )
        self.data["attrs"]["tvm_version"] = version
        self.nodes: list[Node] = self.data["nodes"]
        (self.call,) = (n["attrs"] for n in self.nodes if n["type_key"] == "relay.Call")
        self.attrs = self.nodes[int(self.call["attrs"])]

    def rename(self, name: str, attrs: str = "") -> None:
        """Give the operator and the class of its attributes other names."""
        self.nodes[int(self.call["op"])]["repr_str"] = name
        if attrs:
            self.attrs["type_key"] = f"relay.attrs.{attrs}"

    def drop_last_argument(self) -> None:
        self.nodes[int(self.call["args"])]["data"].pop()

    def load(self) -> relay.Expr:
        return relay.load_json(json.dumps(self.data)).body


def same(got: relay.Expr, want: relay.Expr) -> bool:
    return bool(relay.structural_equal(got, want, map_free_vars=True))


X = relay.var("x", shape=(2, 4, 6, 6))
WEIGHT = relay.var("w", shape=(4, 4, 3, 3))


@pytest.mark.parametrize(
    ("name", "cls", "reduction"),
    [("scatter", "ScatterAttrs", "update"), ("scatter_add", "ScatterAddAttrs", "add")],
)
def test_scatters_of_one_axis(name: str, cls: str, reduction: str) -> None:
    indices = relay.var("i", shape=(2, 3), dtype="int64")
    data, updates = relay.var("d", shape=(2, 5)), relay.var("u", shape=(2, 3))
    call = relay.scatter_elements(data, indices, updates, axis=1, reduction=reduction)
    file = File(call, "0.9.0")
    file.rename(name, cls)
    del file.attrs["attrs"]["reduction"]
    assert same(file.load(), call)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (("bilinear", "half_pixel"), ("linear", "half_pixel", "round")),
        (("bicubic", "align_corners"), ("cubic", "align_corners", "round")),
        (("nearest_neighbor", "half_pixel"), ("nearest_neighbor", "asymmetric", "floor")),
        (("nearest_neighbor", "align_corners"), ("nearest_neighbor", "align_corners", "round")),
        (("bilinear", True), ("linear", "align_corners", "round")),  # 0.6
        (("bilinear", False), ("linear", "asymmetric", "round")),
    ],
)
def test_resize(was: tuple[str, Any], now: tuple[str, str, str]) -> None:
    call = relay.image.resize2d(X, (9, 3), None, "NCHW", *now)
    file = File(call, "0.7.0")
    file.rename("image.resize", "ResizeAttrs")
    fields = file.attrs["attrs"]
    fields["method"] = was[0]
    for name in ("roi", "rounding_method", "cubic_alpha", "cubic_exclude", "extrapolation_value"):
        del fields[name]
    if isinstance(was[1], bool):
        del fields["coordinate_transformation_mode"]
        fields["align_corners"] = str(int(was[1]))
    else:
        fields["coordinate_transformation_mode"] = was[1]
    got = file.load()
    assert got.op == call.op
    assert {**got.attrs, "roi": None} == {**call.attrs, "roi": None}


@pytest.mark.parametrize("version", ["0.6.1", "0.7.0"])
def test_the_value_of_padding(version: str) -> None:
    call = relay.nn.pad(X, ((0, 0), (0, 0), (1, 2), (0, 1)), 2.5)
    file = File(call, version)
    file.drop_last_argument()
    file.attrs["attrs"]["pad_value"] = "2.5"
    assert same(file.load(), call)


def test_thresholds_of_boxes() -> None:
    boxes = relay.var("b", shape=(1, 8, 6))
    call = relay.vision.get_valid_counts(boxes, 0.25).tuple_value
    file = File(call, "0.7.0")
    file.drop_last_argument()
    file.attrs["attrs"]["score_threshold"] = "0.25"
    assert same(file.load(), call)
    counts, indices = (
        relay.var("n", shape=(1,), dtype="int32"),
        relay.var("i", shape=(1, 8), dtype="int32"),
    )
    call = relay.vision.non_max_suppression(boxes, counts, indices, 3, 0.75, return_indices=False)
    file = File(call, "0.7.0")
    file.drop_last_argument()
    file.attrs["attrs"] |= {"iou_threshold": "0.75", "max_output_size": "0"}
    assert same(file.load(), call)


def test_batched_products_transposed_their_second_argument() -> None:
    a, b = relay.var("a", shape=(2, 3, 4)), relay.var("b", shape=(2, 4, 4))
    call = relay.nn.batch_matmul(a, b)  # transpose_b is True
    file = File(call, "0.7.0")
    file.call["attrs"] = "0"
    assert same(file.load(), call)


@pytest.mark.parametrize("version", ["0.7.0", "0.11.1"])
@pytest.mark.parametrize(
    ("rank", "was", "now"),
    [
        (1, ("NCW", "OIW"), ("NCW", "IOW")),
        (2, ("NCHW", "OIHW"), ("NCHW", "IOHW")),
        (2, ("NHWC", "HWIO"), ("NHWC", "HWOI")),
        (3, ("NCDHW", "OIDHW"), ("NCDHW", "IODHW")),
    ],
)
def test_weights_of_transposed_convolutions(
    version: str, rank: int, was: tuple[str, str], now: tuple[str, str]
) -> None:
    """A square weight has the same shape in both layouts, so the result alone shows the layout."""
    x = relay.var("x", shape=(1, *(4,) * (rank + 1)))
    w = relay.var("w", shape=tuple(4 if letter in "IO" else 3 for letter in now[1]))
    conv = getattr(relay.nn, f"conv{rank}d_transpose")
    renewed = version == "0.7.0" or rank != 2
    layouts = dict(zip(("data_layout", "kernel_layout"), now if renewed else was, strict=True))
    call = conv(x, w, channels=4, kernel_size=(3,) * rank, **layouts)
    file = File(call, version)
    file.attrs["attrs"]["kernel_layout"] = was[1]
    assert same(file.load(), call)


@pytest.mark.parametrize(
    ("former", "call"),
    [
        ("contrib.adaptive_avg_pool2d", relay.nn.adaptive_avg_pool2d(X, (2, 3))),
        ("contrib.ndarray_size", relay.ndarray_size(X)),
    ],
)
def test_names(former: str, call: relay.Expr) -> None:
    file = File(call, "0.6.1")
    file.rename(former)
    assert same(file.load(), call)


def test_a_version_is_read_from_the_file_alone() -> None:
    """Without one, a file is of 0.18."""
    call = relay.nn.conv2d_transpose(X, WEIGHT, channels=4, kernel_size=3, kernel_layout="OIHW")
    for attrs in ({}, {"tvm_version": "one"}, {"tvm_version": "0.18.0"}, {"tvm_version": 3}, None):
        file = File(call, "")
        file.data["attrs"] = attrs
        assert same(file.load(), call)


def test_the_result() -> None:
    """A transposed convolution of 0.7 computes with its weight as (in, out, h, w)."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 1, 1)), rng.standard_normal((2, 2, 1, 1))
    params = [relay.var(name, shape=a.shape) for name, a in (("x", x), ("w", w))]
    file = File(relay.nn.conv2d_transpose(*params, channels=2, kernel_size=1), "0.7.0")
    file.attrs["attrs"]["kernel_layout"] = "OIHW"
    function = relay.load_json(json.dumps(file.data))
    got = relay.create_executor("graph").evaluate(function)(
        x.astype("float32"), w.astype("float32")
    )
    want = np.einsum("nihw,io->nohw", x, w[:, :, 0, 0])
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)
