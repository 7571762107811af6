"""Records of earlier versions: kernels that are the same count, options that are gone do not."""

from __future__ import annotations

import json

import pytest

from convoy import paths
from convoy.backends import registry
from convoy.backends.kernels.sources import source_hashes
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.records import environment, upgrade
from convoy.records.environment import Environment
from convoy.records.lines import BadLine, Parser
from convoy.records.store import RecordStore

EARLIER = "hopper/dgrad_strided_library.cuh=e9eb1f7a5b13"
HEADER = {"gpu": "NVIDIA H200", "sm_count": 132, "kernels": EARLIER}


def test_what_is_read_as_a_present_kernel_is_one() -> None:
    """A header whose code has changed since is left out of the table, and its records go stale."""
    present = {f"{name}={digest}" for name, digest in source_hashes().items()}
    assert set(upgrade.KERNELS.values()) <= present


def test_every_shipped_record_is_of_the_present_kernels() -> None:
    here = environment.kernel_hashes()
    store = RecordStore(paths.records_dir())
    assert len(store) == 36517 and not store.skipped
    assert all(environment.same_kernels(here, record.environment.kernels) for record in store)


def test_kernels_are_renamed() -> None:
    found = Environment.from_json(HEADER)
    assert found.kernels == upgrade.KERNELS[EARLIER]
    other = EARLIER.replace("e9eb", "0000")
    assert Environment.from_json({**HEADER, "kernels": other}).kernels == other


def test_a_users_record_is_of_the_candidate_that_is_proposed_today() -> None:
    workload = Workload("dgrad", 256, 14, 14, 1024, 512, 1, 1, (2, 2))
    backend = registry.get("hopper")
    proposed = next(iter(backend.propose(workload, Device())))
    options = json.loads(proposed.config)  # type: ignore[union-attr]
    options["kernel"]["store_warps"] = False
    earlier = json.dumps(options, sort_keys=True, separators=(",", ":"))
    candidate = {"backend": "hopper", "kernel": proposed.kernel, "config": earlier}  # type: ignore[union-attr]
    line = {
        "v": 1,
        "env": "a",
        "workload": workload.to_json(),
        "candidate": candidate,
        "measurement": {"kernel_us": 1.0},
        "time": "2026-01-31T12:00:00Z",
    }
    parser = Parser()
    parser.parse(json.dumps({"v": 1, "id": "a", "environment": HEADER}))
    record = parser.parse(json.dumps(line))
    assert record is not None and record.candidate.config == proposed.config  # type: ignore[union-attr]
    candidate["config"] = earlier.replace('"store_warps":false', '"store_warps":true')
    with pytest.raises(BadLine, match="store warps"):
        parser.parse(json.dumps(line))
