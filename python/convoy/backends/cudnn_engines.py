"""Select the cuDNN engines that compute a workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from ..ir.candidate import Candidate, make_config
from ..ir.workload import Workload


class Config(TypedDict):
    """A configuration of an engine: knobs are pairs of kind and value."""

    engine: int
    knobs: list[list[int]]
    notes: list[str]
    workspace: int


class Dropped(TypedDict):
    """A configuration that cuDNN does not support, or that needs too much workspace."""

    reason: str


class Enumeration(TypedDict):
    """The runtime's answer to ``cudnn.enumerate`` and ``cudnn.check``."""

    cudnn_version: int
    configs: list[Config]
    dropped: list[Dropped]
    refusals: list[str]
    can_compile: bool


class BuiltPlan(TypedDict, total=False):
    """The runtime's answer to ``cudnn.build_plan``: a plan, or the reason why there is none."""

    plan_json: str
    workspace: int
    refusal: str


# Engines compiled at run time cost seconds to build, so that no more than this many are measured
# where there are ready-made ones as well.
_MAX_COMPILED = 3


def _wrong(engine: int, workload: Workload) -> str:
    """Reason why an engine's result would be wrong, as measured with cuDNN 9.19 on sm_90; empty
    when it was right."""
    uneven = not workload.symmetric_padding
    if (workload.op, engine) in (("dgrad", 50), ("wgrad", 1)) and uneven:
        return f"engine {engine} is wrong for uneven padding"
    if (workload.op, engine) == ("wgrad", 61) and workload.is_depthwise:
        return "engine 61 adds up depthwise filter gradients in the type of the result"
    if (workload.op, engine, workload.math) == ("fprop", 7, "tf32"):
        return "engine 7 truncates to tf32: its error is three times that of rounding"
    return ""


def _unwanted(notes: Iterable[str], workload: Workload) -> str:
    """Reason why an engine does not compute the workload as specified; empty if it does."""
    notes = set(notes)
    if "down_convert_inputs" in notes:
        return "rounds its inputs to a narrower type"
    if "reduced_precision_reduction" in notes:
        return f"reduces in a type narrower than {workload.acc_dtype}"
    if workload.dtype == "float32":
        if workload.math == "default" and "tensor_core" in notes:
            return "uses tensor cores, which round float32 to tf32 (math='tf32' allows it)"
        generic = "runtime_compilation" in notes and "tensor_core" not in notes
        if generic and workload.groups == 1:
            return "compiled at run time for scalar units, over 10 times as slow as unfused kernels"
    elif any(note.startswith("winograd") for note in notes):
        return f"Winograd transform in {workload.dtype}"
    return ""


class Engines:
    """Candidates among the engine configurations that the runtime enumerated; ``reasons`` of the
    others."""

    def __init__(self, workload: Workload) -> None:
        self.candidates: list[Candidate] = []
        self.reasons: list[str] = []
        self._workload = workload
        self._compiled = 0

    def add(self, answer: Enumeration, zero_bias: bool = False) -> None:
        self.reasons += answer["refusals"]
        self.reasons += [config["reason"] for config in answer["dropped"]]
        for config in answer["configs"]:
            wrong = _wrong(config["engine"], self._workload)
            if reason := wrong or self._unwanted(config["notes"]):
                self.reasons.append(reason)
            else:
                self._append(config, answer["cudnn_version"], zero_bias)

    def _unwanted(self, notes: Sequence[str]) -> str:
        if reason := _unwanted(notes, self._workload):
            return reason
        if "runtime_compilation" in notes:
            self._compiled += 1
            if self._compiled > _MAX_COMPILED:
                return f"beyond the first {_MAX_COMPILED} that are compiled at run time"
        return ""

    def _append(self, config: Config, version: int, zero_bias: bool) -> None:
        knobs = [tuple(knob) for knob in config["knobs"]]
        options: dict[str, object] = {
            "engine": config["engine"], "knobs": knobs, "version": version
        }  # fmt: skip
        parts = [f"eng{config['engine']}", *(f"k{kind}={value}" for kind, value in knobs)]
        if zero_bias:
            options["zero_bias"] = True
            parts.append("zerobias")
        self.candidates.append(
            Candidate(
                backend="cudnn",
                kernel="_".join(parts),
                config=make_config(**options),
                workspace=config["workspace"],
                priority=len(self.candidates),
                deterministic="nondeterministic" not in config["notes"],
                notes=tuple(config["notes"]),
            )
        )
