#!/usr/bin/env python3
"""Sort records into the files that ship with convoy, one for each network.

    python tuning/ship_records.py new.jsonl other.jsonl.gz
    python tuning/ship_records.py new.jsonl --lists dgrad-float16 --add

A record goes to the first network, in the order below, in whose list its workload is; of several
measurements of one thing the latest stays, or with ``--add`` the one that ships already. Records of
workloads in no list are left out, with a message.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from convoy import paths
from convoy.ir import workload_list
from convoy.ir.workload import Workload
from convoy.records import maintenance, record_file
from convoy.records.record import CandidateKey, Record, candidate_key
from convoy.records.store import RecordStore

NETWORKS = (
    "resnet50",
    "resnet18",
    "squeezenet",
    "googlenet",
    "inception_v3",
    "densenet121",
    "mobilenet_v2",
    "resnext50",
    "stems",
    "inverted-residuals",
    "bottlenecks",
    "squeeze-excite",
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = made.add_argument
    add("records", nargs="+", type=Path)
    add("--gpu", default="NVIDIA H200", help="records of other GPUs are left out")
    add("--lists", default="fprop-float16", help="OP-DTYPE of the lists")
    add("--add", action="store_true", help="replace no record that ships already")
    return made


def main() -> None:
    options = parser().parse_args()
    home: dict[Workload, str] = {}
    for network in NETWORKS:
        listed = paths.workloads_dir() / f"{network}-{options.lists}.jsonl"
        for workload in workload_list.read(listed) if listed.exists() else ():
            home.setdefault(workload, network)
    sorted_out: dict[str, list[Record]] = defaultdict(list)
    shipped = {_thing(record) for record in RecordStore(paths.records_dir())} if options.add else ()
    for record in RecordStore(options.records):
        if record.environment.gpu == options.gpu and _thing(record) not in shipped:
            sorted_out[home.get(record.workload, "")].append(record)
    if homeless := sorted_out.pop("", []):
        print(f"{len(homeless)} records of workloads that are in no list, left out")
    prefix = options.gpu.split()[-1].lower()
    for network, records in sorted_out.items():
        target = paths.records_dir() / f"{prefix}-{network}-{options.lists}.jsonl.gz"
        part = target.with_name(f".{network}.jsonl")
        record_file.replace(part, records)
        outcome = maintenance.merge([part], target)
        part.unlink()
        target.with_name(target.name + ".lock").unlink(missing_ok=True)
        print(f"{target}: {outcome.kept} records, {outcome.removed} superseded")


def _thing(record: Record) -> tuple[str, CandidateKey]:
    """The key of a measurement, whatever its environment."""
    return record.workload.key, candidate_key(record.candidate)


if __name__ == "__main__":
    main()
