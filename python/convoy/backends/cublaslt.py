"""cuBLASLt: GEMMs with algorithms of its heuristic, which are stored in the module as bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import InvalidOption
from ..ir import fields as checks
from ..ir.candidate import Candidate, Decline, make_config
from ..ir.device import Device
from ..ir.roofline import library_us
from ..ir.workload import Workload
from ..runtime.device import present_device
from ..runtime.library import call_json, function, version_text
from .base import Backend, Binary

#: Most workspace of an algorithm, in bytes: NVIDIA's recommendation for Hopper.
MAX_WORKSPACE = 32 << 20
#: Of one workload.
MOST_CANDIDATES = 8
#: The kernel of a module that is built without its GPU.
FIRST_CHOICE = "first_choice"
#: A launch, and the share of the roofline beyond it: 13% off on average for the first choice at 45
#: GEMMs on an H200 (benchmarks/results/h200/2026-11-23-gemm.json).
_LAUNCH_US, _EFFICIENCY = 4.0, 0.8
#: Those of cuBLASLt's epilogues. Its GELU is the tanh form, which is not the exact one.
ACTIVATIONS = ("none", "relu", "gelu_tanh")


class CublasLtBackend(Backend):
    """The first algorithms of cuBLASLt's heuristic for 1x1 convolutions, their gradients and
    matmuls, batched ones too.

    The heuristic needs the GPU. Where it is not there the one candidate is the heuristic's first
    choice, which the machine that loads the module asks for; so does one whose cuBLASLt is of
    another version than the candidate.
    """

    name = "cublaslt"
    libraries = ("cuda", "cublas")

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        w, epilogue = workload, workload.epilogue
        if device.arch < 75:
            return self.decline(
                f"compute capability {device.arch / 10}", "cuBLAS 13 needs 7.5 or later"
            )
        if w.op == "attention":
            return self.decline("op attention", "use the attention backend")
        if w.op == "stem" or w.is_back_to_back:
            return self.decline(f"op {w.op}", "use the hopper backend")
        if (
            (w.groups > 1 and not w.is_batched)
            or w.is_3d
            or (w.r, w.s, w.stride, w.padding) != (1, 1, (1, 1), (0, 0, 0, 0))
        ):
            return self.decline(
                f"{w.label}: not a GEMM", "only 1x1 convolutions of one group, stride 1, no padding"
            )
        if w.op in ("dgrad", "wgrad") and epilogue.name:
            return self.decline(f"epilogue {epilogue.name} on {w.op}", "leave it to TVM")
        if epilogue.activation not in ACTIVATIONS or epilogue.residual_last or epilogue.affine_relu:
            return self.decline(
                f"epilogue {epilogue.name}",
                "only a residual, bias, and relu or GELU in its tanh form behind them",
            )
        if w.out_dtype not in (w.dtype, "float32"):
            return self.decline(f"{w.dtype} in, {w.out_dtype} out", "the same type, or float32")
        if w.acc_dtype != "float32":
            return self.decline(f"acc_dtype {w.acc_dtype}", "accumulate in float32")
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        """Candidates in the order of the heuristic. Raises LibraryMissing without cuBLASLt."""
        if decline := self.accepts(workload, device):
            return decline
        version = cublas_version_number()
        if present_device() != device:
            return [Candidate(self.name, FIRST_CHOICE)]
        limits = {"count": MOST_CANDIDATES, "max_workspace": MAX_WORKSPACE}
        found = call_json("cublaslt.enumerate", workload.to_json(), limits)
        if not found:
            return self.decline(
                f"cuBLASLt {cublas_version()} has no algorithm", "fuse less, or another dtype"
            )
        algos = {algo["name"]: algo for algo in reversed(found)}  # of equal names the first
        return [
            Candidate(
                backend=self.name,
                kernel=name,
                config=make_config(algo=algo["algo"], version=version),
                workspace=algo["workspace"],
                priority=priority,
                notes=() if workload.dtype == "float32" != workload.math else ("tensor_core",),
            )
            for priority, (name, algo) in enumerate(reversed(algos.items()))
        ]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """The entry that the runtime makes the call of."""
        entry = {
            "backend": self.name,
            "arch": device.arch,
            "workload": workload.to_json(),
            "workspace": candidate.workspace,
            "max_workspace": MAX_WORKSPACE,
            **_options(candidate),
        }
        return Binary(entry, {})

    def sliceable(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> frozenset[str] | Decline:
        if workload.is_batched:
            return self.decline("a batched matmul", "slices are copied")
        return frozenset({"x", "y", "residual", "dx", "dy"})

    def estimate_us(self, workload: Workload, candidate: Candidate, device: Device) -> float:
        return library_us(workload, candidate, device, _LAUNCH_US, _EFFICIENCY)

    def check(self, candidate: Candidate) -> None:
        _options(candidate)


def _algo(value: object) -> str:
    """Check for the 64 bytes of an algorithm."""
    if type(value) is str and re.fullmatch("[0-9a-f]{128}", value):
        return value
    raise checks.Mismatch("128 hexadecimal digits", value)


_FIELDS: dict[str, checks.Check] = {"algo": _algo, "version": checks.integer()}


def _options(candidate: Candidate) -> dict[str, object]:
    """Options of a candidate. Raises InvalidOption for one that was not proposed here."""
    what = f"candidate {candidate.key} of the cublaslt backend"
    required = () if candidate.kernel == FIRST_CHOICE else tuple(_FIELDS)
    return checks.checked(candidate.options(), _FIELDS, what, InvalidOption, required)


def cublas_version_number() -> int:
    """Version of the installed cuBLASLt, such as 131000. Raises LibraryMissing."""
    return int(function("cublaslt.version")())


def cublas_version() -> str:
    """The same as text, such as ``13.10.0``. Raises LibraryMissing."""
    return version_text(cublas_version_number())
