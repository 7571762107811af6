"""cuDNN 9 through its backend API: engines by number and knobs, rebuilt when a module is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import CompileFailed, ConvoyError, InvalidOption, LibraryVersionMismatch
from ..ir import fields as checks
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.workload import Workload
from ..runtime.library import call_json, function, version_text
from ..threads import in_threads
from . import cudnn_attention
from .base import Backend, Binary
from .cudnn_device import target_options
from .cudnn_engines import BuiltPlan, Engines, Enumeration

DEFAULT_MAX_WORKSPACE = 256 << 20

# In a refusal: the engine is supported, but cannot be compiled without the driver.
_NO_DRIVER = "RUNTIME_PREREQUISITE_MISSING"


class CudnnBackend(Backend):
    """Engines that cuDNN's heuristics A and B and its fallback list propose.

    ``max_workspace`` is the most device memory, in bytes, that a candidate may need.
    Needs no GPU: for a device that is not present cuDNN works from a description of it.
    """

    name = "cudnn"
    libraries = ("cuda", "cudnn")
    # Least squares over 28 runs of five networks that waited for the processor, and 33 with a
    # synchronization after every call: 2.5 and 5.1 us (launches of the other backends: none). The
    # error of the predicted times fell from 25% to 6% and from 21% to 6%.
    after_others_us = (2.5, 5.1)

    def __init__(self, max_workspace: int = DEFAULT_MAX_WORKSPACE) -> None:
        if max_workspace < 0:
            raise InvalidOption(f"max_workspace = {max_workspace}", "bytes, 0 or more")
        self.max_workspace = max_workspace
        self._compiled: dict[tuple[Workload, Candidate, Device], BuiltPlan] = {}

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        epilogue = workload.epilogue
        if workload.attention is not None:
            reason = cudnn_attention.why_not(workload, workload.attention, device)
            return self.decline(reason, "use the attention backend") if reason else None
        if workload.op == "stem" or workload.is_back_to_back:
            return self.decline(f"op {workload.op}", "use the hopper backend")
        if device.arch < 70:
            return self.decline(
                f"compute capability {device.arch / 10}", "cuDNN 9 needs 7.0 or later"
            )
        if workload.is_batched:
            return self.decline("a batched matmul", "use the cublaslt backend")
        if workload.op in ("dgrad", "wgrad") and epilogue.name:
            return self.decline(
                f"epilogue {epilogue.name} on {workload.op}", "leave the epilogue to TVM"
            )
        if epilogue.affine_relu:
            return self.decline(
                "affine_relu: a second output of the epilogue",
                "leave the scale, shift and relu to TVM or to a kernel that writes both",
            )
        if workload.is_depthwise and epilogue.name:
            return self.decline(
                "an epilogue on a depthwise convolution (fused engines are 20 to 70 times slower)",
                "offload the plain depthwise convolution, leave the epilogue to TVM",
            )
        if workload.acc_dtype != "float32":
            return self.decline(f"acc_dtype {workload.acc_dtype}", "accumulate in float32")
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        """Candidates in the order of the heuristics.

        Raises LibraryMissing without cuDNN, LibraryVersionMismatch if the installed cuDNN
        does not take the description of a device that is not present.
        """
        if decline := self.accepts(workload, device):
            return decline
        found = Engines(workload)
        if _wants_zero_bias(workload):
            found.add(self._enumerate(workload, device, zero_bias=True), zero_bias=True)
        answer = self._enumerate(workload, device)
        found.add(answer)
        missing = not answer.get("can_compile", True) and _is_compiled(workload)
        if found.candidates and not missing:
            return found.candidates
        version = version_text(answer["cudnn_version"])
        if missing:
            found.reasons.append(
                f"engines for {workload.epilogue.name or workload.op} are compiled at run time, "
                "for which NVIDIA's driver is missing"
            )
        why = "; ".join(dict.fromkeys(found.reasons)) or "no engine for this graph"
        return self.decline(f"cuDNN {version}: {why}", "fuse less, or another dtype")

    def propose_all(
        self, workloads: Sequence[Workload], device: Device, compiled: bool = False
    ) -> list[Sequence[Candidate] | Decline]:
        """In threads: cuDNN's heuristics take 0.1 to 0.6 s a workload and run without the GIL."""
        return in_threads(lambda workload: self.propose(workload, device), workloads)

    def neighbours(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> Sequence[Candidate]:
        """The candidate's engine with one knob changed, to each value that cuDNN takes.

        The heuristics propose some 40 of the thousands of configurations of an engine; checking
        one takes a third of a millisecond, and no plan is built.
        """
        options = _options(candidate)
        engine, knobs = options.engine, dict(options.knobs)
        common = {"zero_bias": options.zero_bias, **target_options(device)}
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
        found = Engines(workload)
        found.add(checked, zero_bias=options.zero_bias)
        # They have the priority of the candidate that they vary.
        return [dataclasses.replace(c, priority=candidate.priority) for c in found.candidates]

    def _enumerate(self, workload: Workload, device: Device, **options: bool) -> Enumeration:
        limits = {"max_workspace": self.max_workspace, **target_options(device)}
        answer: Enumeration = call_json(
            "cudnn.enumerate", workload.to_json(), {**limits, **options}
        )
        return answer

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """Return the entry from which the runtime rebuilds the plan.

        The plan of an engine that is compiled at run time is stored as JSON, because building it
        takes seconds. Without NVIDIA's driver it cannot be built here; for such a candidate, which
        comes from records, the machine that loads the module builds it. Raises CompileFailed if
        cuDNN rejects the candidate, LibraryVersionMismatch if another version had proposed it.
        """
        options = _options(candidate)
        entry: dict[str, object] = {
            "backend": "cudnn",
            "arch": device.arch,
            "workload": workload.to_json(),
            "engine": options.engine,
            "knobs": [list(knob) for knob in options.knobs],
            "workspace": candidate.workspace,
            "cudnn_version": options.version,
            "zero_bias": options.zero_bias,
        }
        if "runtime_compilation" in candidate.notes:
            built: BuiltPlan | None = self._compiled.get(key := (workload, candidate, device))
            if built is None:
                built = call_json("cudnn.build_plan", entry, target_options(device))
                self._compiled[key] = built
            if _NO_DRIVER in built.get("refusal", ""):
                return Binary(entry, {})
            if "refusal" in built:
                raise _refused(workload, candidate, built["refusal"])
            entry["plan_json"] = built["plan_json"]
            entry["workspace"] = built["workspace"]
        return Binary(entry, {})

    def prepare(
        self, jobs: Sequence[tuple[Workload, Candidate]], device: Device
    ) -> dict[Candidate, ConvoyError]:
        """Build the plans of engines that are compiled at run time (seconds each), in threads."""

        def failure(job: tuple[Workload, Candidate]) -> ConvoyError | None:
            try:
                self.build(*job, device)
            except ConvoyError as error:
                return error
            return None

        slow = [job for job in dict.fromkeys(jobs) if "runtime_compilation" in job[1].notes]
        failures = zip(slow, in_threads(failure, slow), strict=True)
        return {candidate: error for (_, candidate), error in failures if error is not None}

    def sliceable(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> frozenset[str] | Decline:
        # The workspace of its tensor core engines grows by the bytes of the tensor (9.19).
        return self.decline(
            "cuDNN copies slices through its workspace", "use the cutlass or cublaslt backend"
        )

    def estimate_us(self, workload: Workload, candidate: Candidate, device: Device) -> float | None:
        if workload.attention is None:
            return None  # records hold convolutions and GEMMs of every kind
        return cudnn_attention.estimate_us(workload, candidate, device)

    def check(self, candidate: Candidate) -> None:
        _options(candidate)


_FIELDS: dict[str, checks.Check] = {
    "engine": checks.integer(0, 1 << 16),
    "knobs": checks.tuple_of(checks.tuple_of(checks.integer(-(2**31)), 2), most=1000),
    "version": checks.integer(),
    "zero_bias": checks.boolean,
}


@dataclass(frozen=True)
class _Options:
    """A candidate's engine with its knobs, and the version of cuDNN that proposed it."""

    engine: int
    knobs: tuple[tuple[int, int], ...]
    version: int
    zero_bias: bool = False


def _options(candidate: Candidate) -> _Options:
    """Options of a candidate. Raises InvalidOption for one that :meth:`propose` did not make."""
    what = f"candidate {candidate.key} of the cudnn backend"
    required = ("engine", "knobs", "version")
    return checks.made(_Options, candidate.options(), _FIELDS, what, InvalidOption, required)


def _is_compiled(workload: Workload) -> bool:
    """Return whether only engines that are compiled at run time fuse the operations. Without a
    driver cuDNN offers nothing, or engine 0, many times slower than the convolution alone."""
    epilogue = workload.epilogue
    fused = epilogue.activation not in ("none", "relu") or epilogue.residual_last
    return fused or workload.op == "attention"


def _wants_zero_bias(workload: Workload) -> bool:
    """Return whether a bias of zeros opens up cuDNN's ready-made engines, which all add a bias."""
    epilogue = workload.epilogue
    return bool(epilogue.name) and not epilogue.bias and not _is_compiled(workload)


def _refused(workload: Workload, candidate: Candidate, why: str) -> ConvoyError:
    proposed, installed = version_text(_options(candidate).version), cudnn_version()
    got = f"cuDNN {installed} refusing {candidate.kernel} for {workload.key} ({why})"
    if proposed != installed:
        remedy = "Install that version, or measure and place again."
        return LibraryVersionMismatch(got, f"cuDNN {proposed}, which proposed it", remedy)
    return CompileFailed(got, "an engine that it had proposed", "Choose another candidate.")


def cudnn_version() -> str:
    """Version of the installed cuDNN; empty if none can be loaded."""
    try:
        return version_text(function("cudnn.version")())
    except ConvoyError:
        return ""
