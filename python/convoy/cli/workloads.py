"""The workloads of the model files and lists that a command names."""

from __future__ import annotations

from pathlib import Path

from ..errors import InvalidOption
from ..ir.workload import Workload
from .options import read_model

LISTS = (".jsonl",)


def find_workloads(
    sources: list[Path],
    params: Path | None,
    batch: int | None,
    precision: str,
    joint: bool = True,
    shape: list[str] | None = None,
    end: str = "",
    constant: list[str] | None = None,
) -> list[Workload]:
    """Return the distinct workloads of model files and lists, in their order.

    With ``joint`` a model's include parallel branches as one convolution, which the exact search of
    placement considers (partition/patterns/branches.py).

    Raises:
        InvalidOption: Options that do not go together; and the errors of reading a model and of
            :func:`convoy.pipeline.workloads_of`.
    """
    from ..ir import workload_list

    if params is not None and len(sources) > 1:
        raise InvalidOption("--params with several models", "one model")
    if shape and any(path.suffix in LISTS for path in sources):
        raise InvalidOption("--shape with a workload list", "models alone")
    if batch is not None and any(path.suffix in LISTS for path in sources):
        raise InvalidOption(
            f"--batch {batch} with a workload list",
            "models alone; of a list --contains picks some, such as --contains .n8h",
        )
    found: dict[Workload, None] = {}
    for path in sources:
        if path.suffix in LISTS:
            listed = workload_list.read(path)
        else:
            from ..pipeline import workloads_of

            module = read_model(path, params, batch, shape, end, constant)
            listed = workloads_of(
                module, precision=precision, search="exact" if joint else "greedy"
            )
        found.update(dict.fromkeys(listed))
    return list(found)
