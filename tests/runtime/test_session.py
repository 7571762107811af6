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


def doubled(dtype: str) -> convoy.Session:
    text = TEXT.replace("float32", dtype).replace("multiply(%y, %y)", "%y")
    module = to_relax(relay.parse(text), {})
    return convoy.build(module, "llvm", precision="float32").session()


@pytest.mark.parametrize(("dtype", "number"), [("int8", 300), ("float32", 1e300)])
def test_numbers_that_a_dtype_does_not_hold(dtype: str, number: float) -> None:
    session = doubled(dtype)
    with pytest.raises(InvalidOption, match=f"numbers that {dtype} holds"):
        session.set_input("x", [[number] * 3] * 2)
    session.set_input("x", [[-1] * 3] * 2)
    session.set_input("y", [[0] * 3] * 2)
    session.run()
    assert (session.output().numpy() == -1).all()


def test_infinite_numbers_stay(session: convoy.Session) -> None:
    session.set_input("x", [[np.inf, -np.inf, np.nan]] * 2)
    session.run()
    assert str(session.output().numpy()[0].tolist()) == "[inf, -inf, nan]"


def test_tensors_of_pytorch(session: convoy.Session) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ones = torch.ones(2, 3)
    for x in (ones.requires_grad_(), ones.bfloat16(), ones.half()):
        (got,) = session(x, array(1))
        np.testing.assert_allclose(got, 1 + array(1) ** 2, rtol=1e-6)
    for wrong in (torch.ones(2, 3, device="meta"), torch.ones(2, 3).to_sparse()):
        with pytest.raises(InvalidOption, match="a Tensor that cannot be read"):
            session.set_input("x", wrong)


@pytest.mark.parametrize(
    ("device", "match"),
    [
        ("cuda", r"device 'cuda'; expected .*tvm\.cpu\(0\)"),
        (tvm.cuda(0), r"cuda:0 for a module for llvm; expected tvm\.cpu\(0\)"),
    ],
)
def test_wrong_devices(device, match: str) -> None:
    built = convoy.build(to_relax(relay.parse(TEXT), {}), "llvm")
    with pytest.raises(InvalidOption, match=match):
        built.session(device)


def test_the_linker_hashes_no_weights(tmp_path) -> None:
    convoy.build(to_relax(relay.parse(TEXT), {}), "llvm").export_library(tmp_path / "a.so")
    assert b"build-id" not in (tmp_path / "a.so").read_bytes()


def test_lists_of_uneven_lengths(session: convoy.Session) -> None:
    with pytest.raises(InvalidOption, match="uneven"):
        session.set_input("x", [[1, 2], [3]])


def test_an_isolated_session_takes_what_a_session_takes(session, tmp_path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    convoy.build(to_relax(relay.parse(TEXT), {}), "llvm").export_library(tmp_path / "a.so")
    with convoy.IsolatedSession(tmp_path / "a.so") as isolated:
        for x in (torch.ones(2, 3).bfloat16(), [[1, 1, 1]] * 2, tvm.runtime.tensor(array(3))):
            for got, want in zip(isolated(x, array(1)), session(x, array(1)), strict=True):
                np.testing.assert_array_equal(got, want)
