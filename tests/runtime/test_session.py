"""Sessions on the CPU: inputs bound in place."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

import convoy
from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay.convert import to_relax

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32]) { add(%x, multiply(%y, %y)) }
"""


@pytest.fixture
def session() -> convoy.Session:
    return convoy.build(to_relax(relay.parse(TEXT), {}), "llvm").session()


def array(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (2, 3)).astype("float32")


def test_bound_inputs_are_read_in_place(session: convoy.Session) -> None:
    """A tensor of the caller is used without a copy: later changes of it are seen."""
    mine = tvm.runtime.tensor(array(1))
    session.bind_input("y", mine)
    session.set_input("x", array(2))
    for seed in (1, 3):
        mine.copyfrom(array(seed))
        session.run()
        np.testing.assert_allclose(session.output().numpy(), array(2) + array(seed) ** 2)
    assert session.input("y").data_ptr() == mine.data_ptr()


def test_arrays_of_other_libraries(session: convoy.Session) -> None:
    raw = np.zeros(64 + 6 * 4, np.uint8)
    start = -raw.ctypes.data % 64
    theirs = raw[start : start + 24].view(np.float32).reshape(2, 3)
    theirs[...] = array(4)
    session.bind_input(1, theirs)
    session.set_input("x", array(2))
    session.run()
    np.testing.assert_allclose(session.output().numpy(), array(2) + theirs**2)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (np.zeros((3, 2), "float32"), r"\(3, 2\)"),
        (np.zeros((2, 3), "float64"), "float64"),
    ],
)
def test_tensors_that_do_not_fit(session: convoy.Session, value: np.ndarray, match: str) -> None:
    with pytest.raises(InvalidOption, match=match):
        session.bind_input("y", tvm.runtime.tensor(value))
    with pytest.raises(InvalidOption, match="input 'y'"):
        session.bind_input("y", "no tensor")
    with pytest.raises(InvalidOption, match="input 'z'"):
        session.bind_input("z", tvm.runtime.tensor(array(1)))
