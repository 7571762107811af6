"""The list, case by case. With CONVOY_CONFORMANCE_OUT the outcomes go to that file as JSON, which
scripts/conformance_table.py makes docs/relay-conformance.md of."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import relax_cases, relay_cudnn, relay_cutlass, relay_gradients
from .case import Case, Outcome
from .run import run_case

CASES = [
    *relay_cutlass.CASES,
    *relay_cudnn.CASES,
    *relay_gradients.CASES,
    *relax_cases.CASES,
]
NOT_COMPILED = [
    *relay_cutlass.NOT_COMPILED,
    *relax_cases.NOT_COMPILED,
]
OUT = "CONVOY_CONFORMANCE_OUT"


@pytest.fixture(scope="module")
def outcomes() -> Iterator[list[Outcome]]:
    found: list[Outcome] = []
    yield found
    if OUT in os.environ:
        rows = [dataclasses.asdict(outcome) for outcome in found]
        Path(os.environ[OUT]).write_text(json.dumps(rows, indent=1), encoding="utf-8")


each_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


@pytest.mark.gpu
@each_case
def test_passes_or_is_declined_with_a_reason(case: Case, outcomes: list[Outcome]) -> None:
    outcome = run_case(case)
    outcomes.append(outcome)
    assert outcome.error <= 1, f"{outcome.error:.3g} times what the tolerance allows"
    assert outcome.ran_on != "TVM" or outcome.declined


@each_case
def test_passes_on_the_cpu(case: Case) -> None:
    """TVM's kernels alone, which says that the case's reference is right."""
    assert run_case(case, "llvm").error <= 1
