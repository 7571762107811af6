"""The check of small networks, without PyTorch: errors, and what happens to a process that dies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import check_networks
from harness import network_cases


def test_errors_are_relative_to_the_norm() -> None:
    want = [np.array([3.0, 4.0]), np.array([0.0, 0.0])]
    assert check_networks.errors([np.array([3.0, 4.5]), want[1]], want) == pytest.approx(0.1)
    assert check_networks.errors([want[0], np.array([np.nan, 0.0])], want) == np.inf
    with pytest.raises(AssertionError, match="shape"):
        check_networks.errors([np.zeros((1, 2)), want[1]], want)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_process_that_dies_costs_its_own_case_only(jobs: int, tmp_path: Path) -> None:
    fine = "{'wrong': False, 'build_s': 0}"
    works = [fine, "__import__('os')._exit(1)", fine, fine]
    cases = [
        ({"network": str(i), "form": "any", "importer": "none"}, eval, (code,))
        for i, code in enumerate(works)
    ]
    rows = network_cases.run_all(cases, jobs, str(tmp_path / "rows.json"))
    assert {row["network"]: row.get("failed") for row in rows} == {
        "0": None, "1": "the process died", "2": None, "3": None
    }  # fmt: skip
