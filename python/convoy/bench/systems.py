"""The systems that a benchmark compares: Convoy's session and the same model elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidOption
from . import models

if TYPE_CHECKING:
    import torch

    from ..runtime.session import Session

Array = np.ndarray


class Skipped(Exception):
    """A peer that cannot run the model on this machine, with the reason."""


@dataclass(frozen=True)
class System:
    """A network that is ready to run on inputs that are in place.

    ``run`` enqueues an inference, ``synchronize`` waits for it, ``outputs`` returns the results of
    the last one in the order of the model's.
    """

    name: str
    precision: str
    run: Callable[[], object]
    synchronize: Callable[[], object]
    outputs: Callable[[], list[Array]]


def convoy(session: Session) -> System:
    """Convoy's own session."""

    def outputs() -> list[Array]:
        return [session.output(i).numpy() for i in range(session.num_outputs)]

    precision = session.meta.precision
    return System("convoy", precision, session.run, session.synchronize, outputs)


def _torch(
    path: Path,
    inputs: Mapping[str, Array],
    target: str,
    precision: str,
    *,
    compiled: bool = False,
) -> System:
    """The exported program, run by PyTorch in the same precision."""
    if path.suffix != models.EXPORTED:
        raise Skipped(
            f"PyTorch reads a program of torch.export ({models.EXPORTED}), not {path.name}"
        )
    import torch

    dtypes = {"float16": torch.float16, "bfloat16": torch.bfloat16}
    device = "cuda" if target == "cuda" else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise Skipped("this PyTorch has no CUDA")
    dtype = dtypes.get(precision)
    module = models.exported_program(path).module().to(device)
    arrays = [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in inputs.values()]
    if dtype is not None:
        module = module.to(dtype)
        arrays = [a.to(dtype) if a.is_floating_point() else a for a in arrays]
    torch.backends.cudnn.allow_tf32 = precision in ("tf32", "tf32_conv")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    if compiled:
        module = torch.compile(module, mode="reduce-overhead" if device == "cuda" else "default")
    found: list[torch.Tensor] = []

    def run() -> None:
        with torch.no_grad():
            found[:] = [module(*arrays)]

    def outputs() -> list[Array]:
        leaves = torch.utils._pytree.tree_leaves(found[0])
        return [leaf.detach().float().cpu().numpy() for leaf in leaves]

    run()
    name = "torch.compile" if compiled else "torch"
    synchronize = torch.cuda.synchronize if device == "cuda" else _nothing
    return System(name, precision, run, synchronize, outputs)


def _onnxruntime(path: Path, inputs: Mapping[str, Array], target: str, precision: str) -> System:
    """Run the ONNX model unchanged with onnxruntime."""
    if path.suffix != ".onnx":
        raise Skipped(f"onnxruntime reads ONNX models, not {path.name}")
    try:
        import onnxruntime
    except ImportError as err:
        raise Skipped(f"onnxruntime is not installed ({err})") from None
    provider = "CUDAExecutionProvider" if target == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise Skipped(f"this onnxruntime has no {provider}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
    if missing := [value.name for value in session.get_inputs() if value.name not in inputs]:
        raise Skipped(f"the model has the input {missing[0]!r}, which is a constant here")
    binding, device = session.io_binding(), "cuda" if target == "cuda" else "cpu"
    given = list(inputs.values())
    if len(given) != len(session.get_inputs()):
        raise Skipped(f"the model has {len(session.get_inputs())} inputs, Convoy's {len(given)}")
    kept = []
    for info, array in zip(session.get_inputs(), given, strict=True):
        kept.append(onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), device))
        binding.bind_ortvalue_input(info.name, kept[-1])
    for output in session.get_outputs():
        binding.bind_output(output.name, device)

    def outputs() -> list[Array]:
        return list(binding.copy_outputs_to_cpu())

    def run() -> None:
        session.run_with_iobinding(binding)

    run()
    return System("onnxruntime", "as the model", run, binding.synchronize_outputs, outputs)


def _nothing() -> None:
    """Calls on the CPU are finished when they return."""


_PEERS: dict[str, Callable[[Path, Mapping[str, Array], str, str], System]] = {
    "torch": _torch,
    "torch.compile": functools.partial(_torch, compiled=True),
    "onnxruntime": _onnxruntime,
}
PEERS = tuple(_PEERS)


def peer(name: str, path: Path, inputs: Mapping[str, Array], target: str, precision: str) -> System:
    """Another system with the same model and inputs, after its first run.

    Raises:
        Skipped: It cannot run the model here.
        InvalidOption: There is no such peer.
    """
    if name not in _PEERS:
        raise InvalidOption(f"--against {name}", f"some of {', '.join(PEERS)}")
    try:
        return _PEERS[name](path, inputs, target, precision)
    except (Skipped, InvalidOption):
        raise
    except Exception as err:  # any error of this system; the others can still be timed
        raise Skipped(f"{type(err).__name__}: {err}"[:500]) from err


def relative_error(found: list[Array], expected: list[Array]) -> float | None:
    """Largest relative L2 error of the outputs; None if they are not the same tensors."""
    if [a.shape for a in found] != [a.shape for a in expected]:
        return None
    errors = []
    for mine, theirs in zip(found, expected, strict=True):
        exact = theirs.astype("float64")
        scale = float(np.linalg.norm(exact)) or 1.0
        errors.append(float(np.linalg.norm(mine.astype("float64") - exact)) / scale)
    return float(np.max(errors, initial=0.0))  # NaN where one has a NaN
