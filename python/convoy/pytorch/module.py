"""A compiled PyTorch module: the callable that :func:`convoy.compile` returns."""

from __future__ import annotations

import functools
import inspect
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import build_options, pipeline
from ..errors import InvalidOption
from ..ir.plan import Plan
from ..ir.schedule import Schedule
from ..progress import stages
from .batches import (
    Batches,
    batched_inputs,
    batched_results,
    rows_of,
    with_batch,
)
from .functions import as_module
from .importer import Traced, parameters_of, precision_of, trace
from .plain_tensors import check_module, check_plain, is_traced
from .results import in_place, results_of
from .runner import Batched, GraphRunner, Runner, Tensors, Turns
from .structure import TENSOR, Arguments, describe_call, unflatten


class TorchModule:
    """A compiled module, called with torch tensors as the module that it was made from.

    Attributes:
        built: The :class:`convoy.CompiledModule` behind it.
        module: What was compiled.
    """

    def __init__(
        self,
        module: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        sizes: Sequence[int],
        precision: str | None,
        options: Mapping[str, Any],
        subgraph: bool = False,
    ) -> None:
        """A ``subgraph`` of a program may have tensors in host memory beside those of a GPU, where
        all of it runs, and its results share memory and have strides as in PyTorch."""
        check_options(options)
        if isinstance(module, TorchModule):
            raise InvalidOption("a module that is compiled", "the module that it was made from")
        self.module = module
        self._arguments = Arguments(getattr(module, "forward", module))
        try:
            tensors, self._structure = self._arguments.flatten(args, kwargs)
        except TypeError as err:
            raise InvalidOption(
                f"example inputs ({err})", "the arguments of a call: a tensor, or a tuple"
            ) from None
        whole = as_module(module)
        check_module(whole, tensors)
        self._examples = [t.detach() for t in tensors]
        self.device, self._subgraph = device_of(whole, tensors, subgraph), subgraph
        self.precision = precision or precision_of(
            parameters_of(whole), tensors, widest=whole is not module
        )
        # A call by position with nothing but tensors needs neither binding nor flattening.
        plain = not kwargs and all(isinstance(one, torch.Tensor) for one in args)
        self._plain = len(args) if plain else -1
        self._expected = [(t.shape, t.dtype, t.device) for t in self._examples]
        self._options = dict(options)
        self._sizes = tuple(sizes)
        none = (False,) * len(self._examples)
        self._batched = batched_inputs(self._examples) if self._sizes else none
        self._build()

    def _build(self, plans: Sequence[Plan] = ()) -> None:
        examples: list[Tensors] = [self._examples]
        if self._sizes:
            examples = [with_batch(self._examples, self._batched, n) for n in self._sizes]
        options: dict[str, Any] = {"precision": self.precision, **self._options}
        report = options["progress"] = stages(options.get("progress"))
        with report.stage("trace"):
            traced = self._trace(examples)
        structure = traced[0].result
        # Now, since the conversion gives inputs other names.
        results = results_of(traced[0].program) if self._subgraph else []
        # Most modules give one tensor.
        self._rebuild: Callable[[Tensors], Any] = functools.partial(unflatten, structure)
        if structure == TENSOR:
            self._rebuild = operator.itemgetter(0)
        target = "cuda" if self.device.type == "cuda" else "llvm"
        names = self._arguments.names(self._structure)
        network = [one.source(report, names, self._subgraph) for one in traced]
        self.built = pipeline.build_sources(network, target, plans=plans, **options)
        self._run = self._runner()
        given = [device for _, _, device in self._expected]
        if any(device != self.device for device in (*given, *traced[0].devices)):
            self._run = between_devices(self._run, self.device, traced[0].devices)
        self._run = in_place(self._run, results)

    def _trace(self, examples: Sequence[Tensors]) -> list[Traced]:
        whole = as_module(self.module)
        try:
            return [trace(whole, self._structure, tensors) for tensors in examples]
        except InvalidOption as err:
            if not self._sizes or err.remedy:
                raise
            batched = ", ".join(str(i) for i, of_batch in enumerate(self._batched) if of_batch)
            remedy = f"Batched are the inputs {batched}: their first dimension is that of input 0."
            raise err.reworded(
                remedy=f"{remedy} Examples of another batch size may differ."
            ) from err

    def _runner(self) -> Callable[..., Tensors]:
        import tvm

        on_gpu = self.device.type == "cuda"
        sessions = self.built.sessions(tvm.cuda(self.device.index) if on_gpu else None)
        metas = [session.meta for session in sessions]
        results = (False,) * len(metas[0].outputs)
        if self._sizes:
            results = batched_results(metas, self._sizes)
        batched, turns = Batched(self._batched, results), Turns()
        kind = GraphRunner if on_gpu and self.built.meta.cuda_graph else Runner
        runs = [kind(session, turns, batched) for session in sessions]
        return Batches(self._sizes, runs, batched) if self._sizes else runs[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call as the module that was compiled; the result has its structure.

        Raises:
            InvalidOption: Tensors of other shapes, dtypes or on another device than the example
                inputs, other values of what is not a tensor, inputs that require gradients while
                they are recorded, or those of a trace or of a transform of ``torch.func``.
        """
        tensors: Sequence[Any] = args
        if kwargs or len(args) != self._plain:
            tensors = self._flatten(args, kwargs)
        if is_traced():
            check_plain(tensors)
        try:
            if self._sizes:
                rows = rows_of(tensors, self._expected, self._batched)
                if rows < 0:
                    self._reject(tensors)
                return self._rebuild(self._run(tensors, rows))
            for given, (shape, dtype, device) in zip(tensors, self._expected, strict=True):
                if (
                    not isinstance(given, torch.Tensor)
                    or given.shape != shape
                    or given.dtype is not dtype
                    or given.device != device
                    or (given.requires_grad and torch.is_grad_enabled())
                ):
                    self._reject(tensors)
            return self._rebuild(self._run(tensors))
        except Exception:
            check_plain(tensors)
            raise

    def _flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        examples = f"those of the example inputs, {describe_call(self._structure)}"
        try:
            tensors, structure = self._arguments.flatten(args, kwargs)
        except TypeError as err:
            raise InvalidOption(f"arguments that do not fit ({err})", examples) from None
        if structure != self._structure:
            raise InvalidOption(
                f"arguments {describe_call(structure)}",
                examples,
                "What is not a tensor is part of the compiled module: compile another one for it.",
            )
        return tensors

    def _reject(self, tensors: Sequence[Any]) -> None:
        """Raise for the first input that does not fit."""
        for i, (given, expected) in enumerate(zip(tensors, self._expected, strict=True)):
            if not isinstance(given, torch.Tensor):
                raise InvalidOption(f"a {type(given).__name__} for input {i}", "a torch.Tensor")
            got = (given.shape, given.dtype, given.device)
            if self._batched[i] and given.ndim:
                rows = len(tensors[0])
                expected = (torch.Size((rows, *expected[0][1:])), *expected[1:])
            if got != expected:
                raise InvalidOption(_described(i, *got), _described(None, *expected))
            if given.requires_grad and torch.is_grad_enabled():
                raise InvalidOption(
                    f"input {i}, which requires a gradient",
                    "inputs without: a compiled module has no backward pass",
                    "Call it under torch.no_grad().",
                )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidOption(
            "a copy or pickle of a compiled module",
            "the compiled module itself",
            "export() writes it to a file; convoy.compile makes another one.",
        )

    @property
    def plan(self) -> Plan | None:
        """The placement, of the smallest batch size; None on a CPU, where nothing is placed."""
        return self.built.plan

    @property
    def schedule(self) -> Schedule | None:
        """Streams, launch order and storage; None on a CPU."""
        return self.built.schedule

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write one shared object for :func:`convoy.load`, with the weights; neither PyTorch nor
        the module is needed to run it. Inputs and outputs are the tensors in order; inputs have
        the names of ``forward``'s parameters with the keys inside them, such as ``batch_image``.

        Raises CacheUnwritable where the folder cannot be written.
        """
        self.built.export_library(path)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write an HTML page with what runs, when, and why; measured where the GPU is present.

        Raises:
            InvalidOption: A module for a CPU, where nothing is placed.
        """
        from ..report import html, measured
        from ..runtime import present_device

        if self.built.plan is None:
            raise InvalidOption("a report of a module for a CPU", "one for a GPU")
        timeline = measured.measure(self.built) if present_device() is not None else None
        name = type(self.module).__name__
        html.write(Path(path), html.of_compiled(name, self.built, timeline))

    def update_parameters(self) -> None:
        """Take over the parameters and buffers of the module as they are now.

        Parameters that kernels read in PyTorch's layout are shared with the module, the others are
        copies: after a change of any, results are undefined until this is called. The kernels that
        were chosen stay, nothing is measured again.
        """
        metas = (self.built.meta, *self.built.meta.others)
        self._build([Plan.from_json(meta.plan) for meta in metas if meta.plan])


def check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidOption for an option, or a value of it, that :func:`convoy.build` does not
    take."""
    found: set[str] = set()
    for function in (pipeline.build, pipeline.place):
        found |= inspect.signature(function).parameters.keys()
    known = sorted(found - {"mod", "target", "params", "options"})
    if unknown := options.keys() - set(known):
        raise InvalidOption(f"the option {min(unknown)!r}", f"one of {', '.join(known)}")
    build_options.check_options(**{k: v for k, v in options.items() if v is not None})


def between_devices(
    run: Callable[..., Tensors], device: torch.device, results: Sequence[torch.device]
) -> Callable[..., Tensors]:
    """Run on one device what is given, and expected back, on several."""

    def moved(tensors: Tensors, *rows: int) -> Tensors:
        found = run([tensor.to(device) for tensor in tensors], *rows)
        return [tensor.to(where) for tensor, where in zip(found, results, strict=True)]

    return moved


def device_of(
    module: Callable[..., Any], tensors: Sequence[torch.Tensor], mixed: bool = False
) -> torch.device:
    """The one device of a module and its inputs; with ``mixed`` the GPU among several."""
    held = [*tensors]
    if isinstance(module, torch.nn.Module):
        held += [*module.parameters(), *module.buffers()]
    devices = {t.device for t in held}
    if mixed and len(devices) > 1:
        devices.discard(torch.device("cpu"))
    if len(devices) > 1 or (devices and next(iter(devices)).type not in ("cpu", "cuda")):
        raise InvalidOption(
            f"tensors on {', '.join(sorted(map(str, devices)))}",
            "a module and inputs on one device, cpu or cuda",
            "module.to(device) and tensor.to(device) move them.",
        )
    return devices.pop() if devices else torch.device("cpu")


def _described(index: int | None, shape: Any, dtype: torch.dtype, device: torch.device) -> str:
    which = "" if index is None else f" for input {index}"
    return f"{dtype} {tuple(shape)} on {device}{which}"
