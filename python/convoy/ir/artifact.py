"""The description of a compiled module, which is stored inside its file."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from ..errors import CorruptArtefact
from . import fields as checks

META_FORMAT = 1


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and dtype of an input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Meta:
    """Description of a compiled module, stored inside its file as JSON.

    ``target`` is "cuda" or "llvm", ``precision`` the dtype policy it was built with, ``plan``
    the JSON of the placement (empty for none), ``versions`` the libraries it was built against,
    ``schedule`` the JSON of the schedule (empty for none). ``cuda_graph`` says that sessions are
    to capture the whole function and replay it. ``rescheduled`` are kernels of TVM on which the
    schedule of first choice failed, a line each with what was tried. ``function`` is what runs the
    network; ``others`` describe functions of the same module for other batch sizes. ``layers`` are
    the model's names of its convolutions and matmuls in program order, empty if one has none.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    target: str
    precision: str
    plan: dict[str, object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    schedule: dict[str, object] = field(default_factory=dict)
    cuda_graph: bool = False
    rescheduled: tuple[str, ...] = ()
    function: str = "main"
    others: tuple[Meta, ...] = ()
    layers: tuple[str, ...] = ()
    format: int = META_FORMAT

    @property
    def arch(self) -> int | None:
        """Compute capability times ten of the GPU that the plan is for; None without a plan."""
        device = self.plan.get("device")
        return device.get("arch") if isinstance(device, dict) else None

    def dumps(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def loads(cls, text: str) -> Meta:
        """Inverse of :meth:`dumps`; raises CorruptArtefact where fields are missing."""
        return cls.from_json(checks.parse_json(text, "a module's description", CorruptArtefact))

    @classmethod
    def from_json(cls, data: object) -> Meta:
        """Return a description from its fields; raises as :meth:`loads`."""
        if isinstance(data, dict) and data.get("format") != META_FORMAT:
            raise CorruptArtefact(
                f"a module of format {str(data.get('format'))[:60]}",
                f"format {META_FORMAT}",
                "Build it again with this version of convoy.",
            )
        required = ("format", "inputs", "outputs", "target", "precision")
        return checks.made(cls, data, _META, "description", CorruptArtefact, required)


def _tensor(data: object) -> TensorInfo:
    return checks.made(TensorInfo, data, _TENSOR, "tensor", CorruptArtefact, _TENSOR)


def _json(value: object) -> dict[str, object]:
    return checks.mapping(lambda inner: inner)(value)  # Plan and Schedule check what is inside


_TENSOR: dict[str, checks.Check] = {
    "name": checks.text(10000),
    "shape": checks.tuple_of(checks.integer(0, 2**63 - 1), most=64),
    "dtype": checks.text(),
}
_META: dict[str, checks.Check] = {
    "format": checks.integer(),
    "inputs": checks.tuple_of(_tensor),
    "outputs": checks.tuple_of(_tensor),
    "target": checks.one_of(("cuda", "llvm")),
    "precision": checks.text(),
    "plan": _json,
    "versions": checks.mapping(checks.text(1000), 100),
    "schedule": _json,
    "cuda_graph": checks.boolean,
    "rescheduled": checks.tuple_of(checks.text(1 << 16)),
    "function": checks.text(),
    "others": checks.tuple_of(Meta.from_json, most=1000),
    "layers": checks.tuple_of(checks.text(1 << 16)),
}
