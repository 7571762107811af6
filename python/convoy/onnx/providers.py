"""Arguments of onnxruntime's sessions in Convoy's terms: execution providers and options."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidOption, NoGpu

#: A provider's name, alone or with its options.
Provider = str | tuple[str, Mapping[str, Any]]

#: Targets by the providers that run on the same hardware; the first of each is its name here.
TARGETS = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "NvTensorRTRTXExecutionProvider": "cuda",
    "CPUExecutionProvider": "llvm",
}

#: Options of a session that would write files, with what writes them here.
_WRITES = {
    "enable_profiling": "convoy trace writes a profile.",
    "optimized_model_filepath": "session.compiled.export_library(path) writes the compiled module.",
}


@dataclass(frozen=True)
class Place:
    """Where a session runs: a target and the number of its device."""

    target: str
    index: int = 0


def provider_of(target: str) -> str:
    """Return onnxruntime's name of a target's provider."""
    return next(name for name, known in TARGETS.items() if known == target)


def places_of(
    providers: Sequence[Provider] | None, options: Sequence[Mapping[str, Any]] | None = None
) -> list[Place]:
    """Return the places that providers stand for, in their order.

    Options other than ``device_id`` steer onnxruntime's kernels; a warning says that they have no
    effect.

    Raises:
        InvalidOption: A provider for other hardware, or arguments of another form.
    """
    if isinstance(providers, str):
        raise InvalidOption(f"providers={providers!r}", f"a list, such as [{providers!r}]")
    named = [p if isinstance(p, tuple | list) else (p, {}) for p in providers or ()]
    if options is not None:
        if len(options) != len(named) or any(given for _, given in named):
            raise InvalidOption("provider_options=", "a dictionary for each name in providers=")
        named = [(name, given) for (name, _), given in zip(named, options, strict=True)]
    return list(dict.fromkeys(_place(name, given) for name, given in named))


def _place(name: str, options: Mapping[str, Any]) -> Place:
    if name not in TARGETS:
        raise InvalidOption(f"provider {name!r}", f"one of {', '.join(TARGETS)}")
    if without := sorted(options.keys() - {"device_id"}):
        text = f"{', '.join(without)} of {name} without effect: convoy.build's options choose"
        warnings.warn(text, stacklevel=6)  # the caller of InferenceSession
    index = str(options.get("device_id", 0))
    if not index.isdecimal():
        raise InvalidOption(f"device_id {index!r}", "the number of a device, from 0 on")
    return Place(TARGETS[name], int(index) if TARGETS[name] == "cuda" else 0)


def first_present(places: Sequence[Place], has_gpu: Callable[[int], bool]) -> Place:
    """Return the first place that this machine has: by default its first GPU, else its CPU.

    Raises:
        NoGpu: All of them are GPUs that it does not have.
    """
    for place in places or (Place("cuda"), Place("llvm")):
        if place.target == "llvm" or has_gpu(place.index):
            return place
    raise NoGpu(
        f"providers for GPU {', '.join(str(place.index) for place in places)}, which is absent",
        "a GPU",
        "Add 'CPUExecutionProvider' to run on the CPU without one.",
    )


def check_session_options(options: Any) -> None:
    """Check an ``onnxruntime.SessionOptions``, or None.

    Raises:
        InvalidOption: Another object, or an option that would write a file.
    """
    if options is None:
        return
    if not hasattr(options, "graph_optimization_level"):
        raise InvalidOption(
            f"sess_options={options!r}",
            "an onnxruntime.SessionOptions",
            'A target is given as target="llvm".' if isinstance(options, str) else "",
        )
    for name, remedy in _WRITES.items():
        if getattr(options, name, None):
            raise InvalidOption(f"sess_options.{name}", "sessions that write no files", remedy)
