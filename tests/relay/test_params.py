"""Parameter files, ours and TVM's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

from convoy import relay
from convoy.errors import ConvoyError, RelaySyntaxError

VALUES = {
    "weight": np.arange(6, dtype="float32").reshape(2, 3),
    "scalar": np.array(3, "int8"),
    "empty": np.zeros((0, 2), "float16"),
}


def test_same_bytes_as_tvm() -> None:
    tensors = {k: tvm.runtime.tensor(v) for k, v in VALUES.items()}
    assert isinstance(relay.save_param_dict(tensors), bytearray)
    assert sorted(relay.save_param_dict(tensors)) == sorted(tvm.runtime.save_param_dict(tensors))
    for saved in (relay.save_param_dict(VALUES), bytes(tvm.runtime.save_param_dict(tensors))):
        again = relay.load_param_dict(saved)
        assert set(again) == set(VALUES)
        for name, value in VALUES.items():
            np.testing.assert_array_equal(again[name].numpy(), value)


def test_tvm_reads_ours() -> None:
    again = tvm.runtime.load_param_dict(bytearray(relay.save_param_dict(VALUES)))
    np.testing.assert_array_equal(again["weight"].numpy(), VALUES["weight"])


def test_from_a_path(tmp_path: Path) -> None:
    path = tmp_path / "net.params"
    path.write_bytes(relay.save_param_dict(VALUES))
    assert set(relay.load_param_dict(path)) == set(VALUES)


@given(st.data())
def test_damaged(data: st.DataObject) -> None:
    raw = bytearray(relay.save_param_dict(VALUES))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
        with pytest.raises(ConvoyError):
            relay.load_param_dict(bytes(raw))
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        try:
            relay.load_param_dict(bytes(raw))
        except ConvoyError as error:
            assert str(error)


def test_an_empty_shape_of_a_size_that_no_array_has() -> None:
    raw = bytearray(relay.save_param_dict({"w": np.zeros((0, 4), "float32")}))
    at = raw.index((0).to_bytes(8, "little") + (4).to_bytes(8, "little"))
    raw[at + 8 : at + 16] = (2**62).to_bytes(8, "little")
    with pytest.raises(RelaySyntaxError, match="shape"):
        relay.load_param_dict(bytes(raw))


def test_not_a_parameter_file() -> None:
    with pytest.raises(RelaySyntaxError, match="save_param_dict"):
        relay.load_param_dict(b"PK\x03\x04" + bytes(100))
    with pytest.raises(RelaySyntaxError, match="behind the last"):
        relay.load_param_dict(relay.save_param_dict(VALUES) + b"x")
