"""Epilogues: what contradicts itself is refused, and names of earlier versions stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.errors import InvalidWorkload
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

CONV = {"op": "fprop", "n": 1, "h": 7, "w": 7, "c": 8, "k": 8, "r": 1, "s": 1}
#: As written before activations had parameters, with the keys that records go by.
EARLIER = {
    "residual_bias_relu": {"residual": True, "bias": True, "activation": "relu"},
    "bias_clip[0,6]": {"bias": True, "activation": "clip", "clip_min": 0.0, "clip_max": 6.0},
    "silu": {"activation": "silu"},
    "bias_affinerelu": {"bias": True, "affine_relu": True, "affine_only": False},
}


@pytest.mark.parametrize("name", EARLIER)
def test_earlier_records(name: str) -> None:
    workload = Workload.from_json({**CONV, "epilogue": EARLIER[name]})
    assert workload.epilogue.name == name
    assert workload.key == f"fprop.n1h7w7c8k8r1s1.st1x1.pd0x0.float16-float16-float32.{name}"


@st.composite
def epilogues(draw: st.DrawFn) -> Epilogue:
    name = draw(st.sampled_from(ACTIVATIONS))
    residual = draw(st.booleans())
    numbers = st.floats(-100, 100, width=32)
    return Epilogue(
        residual=residual,
        bias=draw(st.booleans()),
        activation=name,
        alpha=draw(numbers) if name in WITH_ALPHA else 0.0,
        residual_last=residual and name != "none" and draw(st.booleans()),
    )


@given(epilogues(), epilogues())
def test_names_tell_epilogues_apart(one: Epilogue, other: Epilogue) -> None:
    assert (one.name == other.name) == (one == other)
    workload = Workload(**CONV, epilogue=one)  # type: ignore[arg-type]
    assert Workload.from_json(workload.to_json()) == workload


@pytest.mark.parametrize(
    "fields",
    [
        {"activation": "swish"},
        {"activation": "gelu", "alpha": 0.1},
        {"residual_last": True, "activation": "relu"},
        {"residual_last": True, "residual": True},
        {"activation": "elu", "alpha": float("nan")},
        {"activation": "elu", "alpha": "0.1"},
    ],
)
def test_contradictions(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidWorkload):
        Workload.from_json({**CONV, "epilogue": fields})
