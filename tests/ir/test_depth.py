"""Convolutions over volumes as workloads: what stays as it was without a depth, and when reshapes
of the operands make one over images."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.backends.cublaslt import CublasLtBackend
from convoy.backends.cudnn import CudnnBackend
from convoy.backends.kernels.cutlass.family import cutlass_backend
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.errors import InvalidWorkload
from convoy.ir.depth import Depth
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.measure import reference

PLAIN = Workload("fprop", 2, 8, 8, 16, 32, 3, 3, padding=(1, 1, 1, 1))


def volume(**fields: object) -> Workload:
    given: dict = {"n": 1, "h": 4, "w": 5, "c": 3, "k": 2, "r": 3, "s": 3}
    return Workload("fprop", **{**given, **fields})


def test_images_are_named_and_stored_as_before() -> None:
    assert PLAIN.key == "fprop.n2h8w8c16k32r3s3.st1x1.pd1x1.float16-float16-float32"
    assert "depth" not in PLAIN.to_json() and not PLAIN.is_3d
    assert [len(shape) for _, shape, _ in PLAIN.operand_shapes()] == [4, 4, 4]


def test_a_depth_is_part_of_the_key_and_of_the_json() -> None:
    load = volume(depth=Depth(6, 3, 2, (1, 0), 2))
    assert ".d6t3st2pd1x0dl2." in load.key
    assert Workload.from_json(json.loads(json.dumps(load.to_json()))) == load
    (_, x, _), (_, w, _), (_, y, _) = load.operand_shapes()
    assert (x, w, y) == ((1, 6, 4, 5, 3), (2, 3, 3, 3, 3), (1, 2, 2, 3, 2))
    assert load.flops == 2 * np.prod(y) * 27 * 3
    assert load.gemms == (1, 1 * 2 * 2 * 3, 2, 27 * 3)


@pytest.mark.parametrize(
    "data", [{"d": 0}, {"t": 3}, {"padding": [1]}, {"padding": [-1, 0]}, {"planes": 2}]
)
def test_a_wrong_depth_is_named(data: dict) -> None:
    with pytest.raises(InvalidWorkload):
        Workload.from_json({**volume().to_json(), "depth": data})


def test_only_forward_and_data_gradients_have_a_depth() -> None:
    with pytest.raises(InvalidWorkload, match="wgrad"):
        Workload("wgrad", 1, 4, 4, 3, 2, 3, 3, depth=Depth(4, 3))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_flattened_computes_the_same(data: st.DataObject) -> None:
    r, s = data.draw(st.sampled_from([(1, 1), (3, 2)]))
    t = data.draw(st.sampled_from([1, 3]))
    depth = Depth(
        data.draw(st.integers(3, 5)), t, data.draw(st.integers(1, 2)),
        data.draw(st.sampled_from([(0, 0), (1, 0)])), data.draw(st.integers(1, 1)),
    )  # fmt: skip
    padding = data.draw(st.sampled_from([(0, 0, 0, 0), (1, 0, 1, 0)]))
    stride = data.draw(st.sampled_from([(1, 1), (1, 2)]))
    load = volume(n=2, r=r, s=s, depth=depth, padding=padding, stride=stride)
    flat = load.flattened
    one_plane = t == depth.stride == 1 and not any(depth.padding)
    one_pixel = (r, s, stride) == (1, 1, (1, 1)) and not any(padding)
    assert flat.is_3d == (not one_plane and not one_pixel)
    rng = np.random.default_rng(0)
    operands = {name: rng.uniform(-1, 1, shape) for name, shape, _ in load.operand_shapes()[:2]}
    reshaped = {name: operands[name].reshape(shape) for name, shape, _ in flat.operand_shapes()[:2]}
    (want,), (got,) = reference.full(load, operands), reference.full(flat, reshaped)
    np.testing.assert_allclose(got.reshape(want.shape), want, atol=1e-12)
    assert flat.flattened == flat and flat.flops == load.flops


def test_libraries_of_images_decline_volumes() -> None:
    load = Workload(
        "fprop", 1, 16, 16, 64, 64, 3, 3, padding=(1, 1, 1, 1), depth=Depth(8, 3, padding=(1, 1))
    )
    device = Device()
    assert CudnnBackend().accepts(load, device) is None
    for backend in (cutlass_backend(), sm90_backend(), CublasLtBackend()):
        decline = backend.accepts(load, device)
        assert decline is not None and decline.reason
