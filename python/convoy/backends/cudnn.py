"""cuDNN 9 through its backend API: engines by number and knobs, rebuilt when a module is loaded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from ..errors import CompileFailed, ConvoyError, InvalidOption, LibraryVersionMismatch, NoGpu
from ..ir.candidate import Candidate, Decline, make_config
from ..ir.device import Device
from ..ir.workload import Workload
from ..runtime.device import current_device
from ..runtime.library import call_json, function
from .base import Backend, Binary

DEFAULT_MAX_WORKSPACE = 256 << 20

# Engines compiled at run time cost seconds to build, so that no more than this many are measured
# where there are ready-made ones as well.
_MAX_COMPILED = 3

# In a refusal: nothing is wrong with the engine, but compiling it needs what is not here.
_NO_DRIVER = "RUNTIME_PREREQUISITE_MISSING"


class CudnnBackend(Backend):
    """Engines that cuDNN's heuristics A and B and its fallback list propose.

    ``max_workspace`` is the most device memory, in bytes, that a candidate may need.
    Needs no GPU: for a device that is not present cuDNN works from a description of it.
    """

    name = "cudnn"
    libraries = ("cuda", "cudnn")
    # Least squares over 28 runs of five networks that waited for the processor, and 33 with a
    # synchronisation after every call: 2.5 and 5.1 us (launches of the other backends: none). The
    # error of the predicted times fell from 25% to 6% and from 21% to 6%.
    after_others_us = (2.5, 5.1)

    def __init__(self, max_workspace: int = DEFAULT_MAX_WORKSPACE) -> None:
        if max_workspace < 0:
            raise InvalidOption(f"max_workspace = {max_workspace}", "bytes, 0 or more")
        self.max_workspace = max_workspace

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        epilogue = workload.epilogue
        if device.arch < 70:
            return self._decline(
                f"compute capability {device.arch / 10}", "cuDNN 9 needs 7.0 or later"
            )
        if workload.op in ("dgrad", "wgrad") and epilogue.name:
            return self._decline(
                f"epilogue {epilogue.name} on {workload.op}", "leave the epilogue to TVM"
            )
        if epilogue.affine_relu:
            return self._decline(
                "affine_relu: a second output of the epilogue",
                "leave the scale, shift and relu to TVM or to a kernel that writes both",
            )
        if workload.is_depthwise and epilogue.name:
            return self._decline(
                "an epilogue on a depthwise convolution (fused engines are 20 to 70 times slower)",
                "offload the plain depthwise convolution, leave the epilogue to TVM",
            )
        if workload.acc_dtype != "float32":
            return self._decline(f"acc_dtype {workload.acc_dtype}", "accumulate in float32")
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        """Candidates in the order of the heuristics.

        Raises LibraryMissing without cuDNN, LibraryVersionMismatch where the installed cuDNN
        does not take the description of a device that is not present.
        """
        if decline := self.accepts(workload, device):
            return decline
        found = _Found(workload)
        if _wants_zero_bias(workload):
            found.add(self._enumerate(workload, device, zero_bias=True), zero_bias=True)
        answer = self._enumerate(workload, device)
        found.add(answer)
        if found.candidates:
            return found.candidates
        version = _version(answer["cudnn_version"])
        why = "; ".join(_distinct(found.reasons)) or "no engine for this graph"
        return self._decline(f"cuDNN {version}: {why}", "fuse less, or another dtype")

    def neighbours(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> Sequence[Candidate]:
        """The candidate's engine with one knob changed, to each value that cuDNN takes.

        The heuristics propose some 40 of the thousands of configurations of an engine; checking
        one takes a third of a millisecond, and no plan is built.
        """
        options = candidate.options()
        engine, knobs = options["engine"], dict(options["knobs"])
        zero_bias = options.get("zero_bias", False)
        common = {"zero_bias": zero_bias, **_target_options(device)}
        answer = call_json("cudnn.knobs", workload.to_json(), {"engine": engine, **common})
        changed = [
            {"engine": engine, "knobs": sorted({**knobs, kind: value}.items())}
            for kind, least, most, step in answer.get("knobs", ())
            for value in range(least, most + 1, max(1, step))
            if kind in knobs and value != knobs[kind]
        ]
        if not changed:
            return ()
        limits = {"max_workspace": self.max_workspace, "configs": changed, **common}
        checked = call_json("cudnn.check", workload.to_json(), limits)
        found = _Found(workload)
        found.add(checked, zero_bias=zero_bias)
        # In the backend's order of preference they stand where the one stands that they vary.
        return [dataclasses.replace(c, priority=candidate.priority) for c in found.candidates]

    def _enumerate(self, workload: Workload, device: Device, **options: bool) -> dict[str, Any]:
        limits = {"max_workspace": self.max_workspace, **_target_options(device)}
        answer: dict[str, Any] = call_json(
            "cudnn.enumerate", workload.to_json(), {**limits, **options}
        )
        return answer

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """The entry that the runtime rebuilds the plan from.

        The plan of an engine that is compiled at run time goes along as JSON, because building
        it takes seconds. Without NVIDIA's driver it cannot be built, which is left to the machine
        that loads the module: such a candidate comes from records. Raises CompileFailed when cuDNN
        refuses it, LibraryVersionMismatch when another version had proposed it.
        """
        options = candidate.options()
        entry: dict[str, Any] = {
            "backend": "cudnn",
            "arch": device.arch,
            "workload": workload.to_json(),
            "engine": options["engine"],
            "knobs": options["knobs"],
            "workspace": candidate.workspace,
            "cudnn_version": options["version"],
            "zero_bias": options.get("zero_bias", False),
        }
        if "runtime_compilation" in candidate.notes:
            built = call_json("cudnn.build_plan", entry, _target_options(device))
            if _NO_DRIVER in built.get("refusal", ""):
                return Binary(entry, {})
            if "refusal" in built:
                raise _refused(workload, candidate, built["refusal"])
            entry["plan_json"] = built["plan_json"]
            entry["workspace"] = built["workspace"]
        return Binary(entry, {})

    def build_plan(self, workload: Workload, candidate: Candidate, device: Device) -> int:
        """Build the candidate's plan now, for a device that need not be present; its workspace in
        bytes. Raises LibraryMissing without cuDNN, CompileFailed when cuDNN refuses the plan (an
        engine that is compiled at run time needs NVIDIA's driver for that)."""
        entry = self.build(workload, dataclasses.replace(candidate, notes=()), device).entry
        built = call_json("cudnn.build_plan", entry, _target_options(device))
        if "refusal" in built:
            raise _refused(workload, candidate, built["refusal"])
        return int(built["workspace"])

    def _decline(self, reason: str, remedy: str) -> Decline:
        return Decline(self.name, reason, remedy)


def _wrong(engine: int, workload: Workload) -> str:
    """Why an engine's result would be wrong, as measured with cuDNN 9.19 on an H200; empty when it
    was right."""
    uneven = not workload.symmetric_padding
    if (workload.op, engine) in (("dgrad", 50), ("wgrad", 1)) and uneven:
        return f"engine {engine} is wrong for uneven padding"
    if (workload.op, engine) == ("wgrad", 61) and workload.is_depthwise:
        return "engine 61 adds up depthwise filter gradients in the type of the result"
    return ""


def _unwanted(notes: Iterable[str], workload: Workload) -> str:
    """Why an engine would not compute what the workload asks for; empty when it would."""
    notes = set(notes)
    if "down_convert_inputs" in notes:
        return "rounds its inputs to a narrower type"
    if "reduced_precision_reduction" in notes:
        return f"reduces in a type narrower than {workload.acc_dtype}"
    if workload.dtype == "float32":
        if workload.math == "default" and "tensor_core" in notes:
            return "uses tensor cores, which round float32 to tf32 (math='tf32' allows it)"
    elif any(note.startswith("winograd") for note in notes):
        return f"Winograd transform in {workload.dtype}"
    return ""


class _Found:
    """Candidates out of what the runtime enumerated, and why the others are none."""

    def __init__(self, workload: Workload) -> None:
        self.candidates: list[Candidate] = []
        self.reasons: list[str] = []
        self._workload = workload
        self._compiled = 0

    def add(self, answer: dict[str, Any], zero_bias: bool = False) -> None:
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

    def _append(self, config: dict[str, Any], version: int, zero_bias: bool) -> None:
        knobs = [tuple(knob) for knob in config["knobs"]]
        options = {"engine": config["engine"], "knobs": knobs, "version": version}
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


def _wants_zero_bias(workload: Workload) -> bool:
    """Whether a bias of zeros opens up cuDNN's ready-made engines, which all add a bias."""
    epilogue = workload.epilogue
    return bool(epilogue.name) and not epilogue.bias and epilogue.activation in ("none", "relu")


def _target_options(device: Device) -> dict[str, Any]:
    """Options that make cuDNN plan for ``device``: none where it is the one that is present."""
    try:
        if current_device() == device:
            return {}
    except NoGpu:
        pass
    return {"deviceprop": json.dumps(device_properties(device))}


def device_properties(device: Device) -> dict[str, Any]:
    """A description of ``device`` in cuDNN's form, after that of a real H200.

    Limits of the architecture that Device does not carry are the H200's; they are the same for
    compute capabilities 8.0 and 9.0.
    """
    text = (resources.files(__package__) / "data" / "h200.json").read_text(encoding="utf-8")
    properties: dict[str, Any] = json.loads(text)["properties"]
    properties.update(
        deviceName=device.name,
        deviceVer=device.arch * 10,
        multiProcessorCount=device.sm_count,
        maxSharedMemoryPerBlockOptin=device.shared_memory_per_block,
        l2CacheSize=device.l2_bytes,
        totalGlobalMem=device.memory_bytes,
    )
    return properties


def _refused(workload: Workload, candidate: Candidate, why: str) -> ConvoyError:
    proposed, installed = _version(candidate.options()["version"]), cudnn_version()
    got = f"cuDNN {installed} refusing {candidate.kernel} for {workload.key} ({why})"
    if proposed != installed:
        remedy = "Install that version, or measure and place again."
        return LibraryVersionMismatch(got, f"cuDNN {proposed}, which proposed it", remedy)
    return CompileFailed(got, "an engine that it had proposed", "Choose another candidate.")


def cudnn_version() -> str:
    """Version of the installed cuDNN, empty where there is none that works."""
    try:
        return _version(function("cudnn.version")())
    except ConvoyError:
        return ""


def _version(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
