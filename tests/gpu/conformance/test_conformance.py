"""The list, case by case. With CONVOY_CONFORMANCE_OUT each outcome is appended to that file as a
line of JSON, of which page.py makes docs/relay-conformance.md."""

from __future__ import annotations

import dataclasses
import json
import os

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


def _record(outcome: Outcome) -> None:
    """Append in one write, so that several test processes may share the file."""
    line = json.dumps(dataclasses.asdict(outcome)) + "\n"
    file = os.open(os.environ[OUT], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


each_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


@pytest.mark.gpu
@each_case
def test_passes_or_is_declined_with_a_reason(case: Case) -> None:
    outcome = run_case(case)
    if OUT in os.environ:
        _record(outcome)
    assert outcome.error <= 1, f"{outcome.error:.3g} times what the tolerance allows"
    assert outcome.ran_on != "TVM" or outcome.declined


@each_case
def test_passes_on_the_cpu(case: Case) -> None:
    """TVM's kernels alone, which says that the case's reference is right."""
    assert run_case(case, "llvm").error <= 1
