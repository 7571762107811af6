"""Lists of convolutions (``tuning/workloads/*.json``) as workloads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy import paths
from convoy.errors import InvalidOption
from convoy.ir.workload import Workload

DIRECTIONS = ("fprop", "dgrad", "wgrad")


@dataclass(frozen=True)
class Layer:
    """A convolution of a network in one direction at one batch size.

    ``count`` is how often it occurs in the network; ``reference_us`` has times of another machine
    by library, where the list carries them.
    """

    workload: Workload
    count: int = 1
    reference_us: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        """Short name, such as ``56x56 64>128 3x3/2``."""
        w = self.workload
        stride = f"/{w.stride[0]}" if w.stride != (1, 1) else ""
        return f"{w.h}x{w.w} {w.c}>{w.k} {w.r}x{w.s}{stride}"

    @property
    def is_stem(self) -> bool:
        return self.workload.c <= 4

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload.to_json(),
            "count": self.count,
            "reference_us": dict(self.reference_us),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Layer:
        reference = tuple(data["reference_us"].items())
        return cls(Workload.from_json(data["workload"]), data["count"], reference)


def read(name: str | Path) -> dict[str, Any]:
    """A list by its file, or by the name of one that ships. Raises InvalidOption."""
    path = Path(name)
    if path.suffix != ".json":
        path = paths.workloads_dir() / f"{name}.json"
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        return data
    except (OSError, ValueError) as error:
        shipped = ", ".join(sorted(p.stem for p in paths.workloads_dir().glob("*.json")))
        raise InvalidOption(
            f"workload list {path} ({error})", f"a JSON file, or {shipped}"
        ) from None


def layers(
    data: dict[str, Any],
    batches: Iterable[int],
    ops: Iterable[str] = DIRECTIONS,
    dtype: str = "float16",
) -> Iterator[Layer]:
    """Every convolution of a list in every direction and batch size.

    float32 is strict: no rounding to tf32.
    """
    fields = {field.name for field in dataclasses.fields(Workload)}
    ops = tuple(ops)
    for n in batches:
        for op in ops:
            for entry in data["convolutions"]:
                sizes = {key: value for key, value in entry.items() if key in fields}
                workload = Workload.from_json(
                    {"op": op, "n": n, "dtype": dtype, "out_dtype": dtype, **sizes}
                )
                reference = entry.get("reference_us", {}).get(op, {}).get(str(n), {})
                yield Layer(workload, entry["count"], tuple(reference.items()))
