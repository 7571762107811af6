"""torchvision's deformable convolution, against ONNX's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convoy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnx", reason="ONNX is not installed")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from convoy.pytorch.decompositions import NAMED  # noqa: E402

#: Filter, stride, padding, dilation along h and w, groups, parts of channels with offsets, factors.
CASES = {
    "plain": ((6, 4, 3, 3), (1, 1), (1, 1), (1, 1), 1, 1, False),
    "grouped": ((4, 2, 3, 2), (2, 1), (1, 2), (2, 1), 2, 4, True),
}


@pytest.mark.parametrize("name", CASES)
def test_against_onnx(name: str) -> None:
    filters, stride, padding, dilation, groups, parts, with_mask = CASES[name]
    rng = np.random.default_rng(0)
    out = [
        (size + 2 * pad - step * (taps - 1) - 1) // by + 1
        for size, pad, step, taps, by in zip(
            (7, 6), padding, dilation, filters[2:], stride, strict=True
        )
    ]
    taps = filters[2] * filters[3]
    shapes = {
        "x": (2, 4, 7, 6),
        "w": filters,
        "offset": (2, 2 * parts * taps, *out),
        "bias": filters[:1],
        "mask": (2, parts * taps, *out),
    }
    values = {key: rng.normal(size=shape).astype("float32") for key, shape in shapes.items()}
    values["offset"] *= 2
    if not with_mask:
        values["mask"][:] = 1

    def convolved(x: Any, w: Any, offset: Any, bias: Any, mask: Any) -> Any:
        return NAMED["torchvision.deform_conv2d.default"](
            x, w, offset, mask, bias, *stride, *padding, *dilation, groups, parts, with_mask
        )

    inputs = tuple(map(torch.from_numpy, values.values()))
    got = convoy.compile(convolved, inputs, cache=False)(*inputs)
    want = onnx_reference(values, stride, padding, dilation, groups, parts)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def onnx_reference(
    values: dict[str, Any], stride: Any, padding: Any, dilation: Any, groups: int, parts: int
) -> Any:
    node = helper.make_node(
        "DeformConv", list(values), ["y"], strides=stride, pads=padding * 2, dilations=dilation,
        group=groups, offset_group=parts,
    )  # fmt: skip
    made = [
        helper.make_tensor_value_info(key, TensorProto.FLOAT, x.shape) for key, x in values.items()
    ]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "deformable", made, result)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    return ReferenceEvaluator(model).run(None, values)[0]
