"""A training step of a PyTorch module as one compiled function: forward, backward, update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from torch.export import ExportedProgram
from tvm import relax

from .. import pipeline
from ..build_cache.source import Source
from ..errors import InvalidOption, UnsupportedOp
from ..graph.function import count_uses, main_function
from ..progress import Stages, stages
from ..training import Scaling, TrainingSession, train_step
from ..training.names import COUNT, LEARNING_RATE, RANDOM, StepNames
from .content import program_content
from .importer import parameters_of, precision_of, to_relax, trace
from .module import check_options, device_of
from .optimizers import OptimizerState, groups_of, rates_of, trained_by
from .runner import Turns
from .side_effects import restored
from .structure import Structure, describe, flatten, unflatten

#: What counts the batches that it has seen.
_BATCH_NORM = torch.nn.modules.batchnorm._BatchNorm


def compile_training_step(
    module: torch.nn.Module,
    loss: Callable[[Any, Any], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    inputs: Any,
    targets: Any,
    *,
    precision: str | None = None,
    clip_norm: float | None = None,
    loss_scale: float | str = 1.0,
    **options: Any,
) -> TrainingStep:
    """Compile ``loss(module(inputs), targets)``, its gradients and the optimizer's update.

    Every call updates the parameters: gradients are not accumulated over calls. ``inputs`` is the
    whole batch of an update.

    Dropout and other random numbers differ from step to step; ``torch.manual_seed`` before the
    step is compiled decides which they are.

    Args:
        module: As it is to be trained: in training mode batch norms use the statistics of the
            batch and update their own.
        loss: From the module's result and the targets to a scalar.
        optimizer: A ``torch.optim.SGD``, ``Adam`` or ``AdamW``; its parameters are trained, with
            the state that it has. Its learning rates are read at every step, so that schedulers
            work.
        inputs: Example of the module's input; a tuple has several by position, a dictionary by
            name. Later batches have the same shapes and dtypes.
        targets: Example of the loss's second argument, a tensor or a structure of them.
        precision: As for :func:`convoy.compile`; parameters stay in the module's dtype.
        clip_norm: Largest norm of all gradients together, as ``torch.nn.utils.clip_grad_norm_``.
        loss_scale: Factor of the loss against underflow of gradients in float16; "dynamic" adapts
            it as ``torch.amp.GradScaler`` does.
        options: Those of :func:`convoy.build`.

    Raises:
        InvalidOption: An argument of another kind, another optimizer, or settings of it that the
            compiled update has not.
        UnsupportedOp: An operator that cannot be converted or differentiated.
    """
    for value, fits, expected in (
        (module, isinstance(module, torch.nn.Module), "a torch.nn.Module"),
        (loss, callable(loss), "a function of a result and targets, such as F.cross_entropy"),
        (optimizer, isinstance(optimizer, torch.optim.Optimizer), "a torch.optim.SGD or Adam(W)"),
    ):
        if not fits:
            raise InvalidOption(f"a {type(value).__name__}", expected)
    check_options(options)
    scaling = Scaling(clip_norm, loss_scale)
    return TrainingStep(module, loss, optimizer, (inputs, targets), precision, scaling, options)


class TrainingStep:
    """A compiled step; parameters live in it until :meth:`update_module`."""

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Callable[[Any, Any], torch.Tensor],
        optimizer: torch.optim.Optimizer,
        batch: tuple[Any, Any],
        precision: str | None,
        scaling: Scaling,
        options: Mapping[str, Any],
    ) -> None:
        self.module, self.optimizer, self._steps = module, optimizer, 0
        _check_momentum(module)
        examples, self._structure = flatten(batch)
        trained = trained_by(optimizer, module)
        moved = {n: b for n, b in module.named_buffers() if b.is_floating_point()}
        held = {**trained, **moved}
        #: How often a step writes to buffers of integers.
        self._counts: dict[str, int] = {}
        batch_of = self._structure, len(examples)
        flat = _Loss(module, loss, *batch_of, [*trained], [*moved], self._counts)
        given = [t.detach() for t in (*examples, *held.values())]
        report = stages(options.get("progress"))
        with report.stage("trace"), restored(module):
            traced = trace(flat, flatten((tuple(given), {}))[1], given, training=True)
        _check_counts(module, self._counts)
        names = list(traced.program.graph_signature.user_inputs)
        self._inputs = names[: len(examples)]
        of_state = dict(zip(names[len(examples) :], held, strict=True))
        weights = {name: trained[at] for name, at in of_state.items() if at in trained}
        moving = [name for name, at in of_state.items() if at in moved]
        network = _step(traced.program, self._inputs, weights, moving, optimizer, scaling, report)
        self.device = device_of(module, examples)
        on_gpu = self.device.type == "cuda"
        precision = precision or precision_of(parameters_of(module), examples)
        target, options = "cuda" if on_gpu else "llvm", {**options, "progress": report}
        self.built = pipeline.build_sources([network], target, precision=precision, **options)
        held_names = [info.name for info in self.built.meta.inputs]
        learned = {name: weights[name] for name in held_names if name in weights}
        step = StepNames.of(held_names, groups_of(optimizer, learned))
        self._state = {name: at for name, at in of_state.items() if name in step.state}
        self._kept = OptimizerState(optimizer, learned, step.slots)
        device = tvm.cuda(self.device.index) if on_gpu else None
        values = self._initial_values(step, held)
        rates = rates_of(optimizer).numpy()
        self._session = TrainingSession(self.built, step, values, rates, device)
        self._turns = Turns()
        session = self._session.session
        self._buffers = [torch.from_dlpack(session.input(name)) for name in self._inputs]
        self._rate = torch.from_dlpack(session.input(LEARNING_RATE))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidOption(
            "a copy or pickle of a compiled training step",
            "the step itself",
            "update_module() writes what it has trained to the module, which can be saved.",
        )

    def __call__(self, inputs: Any, targets: Any) -> torch.Tensor:
        """One step; the loss before the update, as a tensor on the module's device."""
        tensors, structure = flatten((inputs, targets))
        if structure != self._structure:
            raise InvalidOption(
                f"a batch {describe(structure)}",
                f"one as the examples, {describe(self._structure)}",
            )
        for given, buffer in zip(tensors, self._buffers, strict=True):
            if (given.shape, given.dtype) != (buffer.shape, buffer.dtype):
                raise InvalidOption(
                    f"{given.dtype} {tuple(given.shape)}", f"{buffer.dtype} {tuple(buffer.shape)}"
                )
        with self._turns.lock:
            self._steps += 1
            on_gpu = self.device.type == "cuda"
            stream = self._turns.follow(self.device.index) if on_gpu else 0
            self._rate.copy_(rates_of(self.optimizer))
            for given, buffer in zip(tensors, self._buffers, strict=True):
                buffer.copy_(given, non_blocking=True)
            if on_gpu:
                import tvm_ffi

                with tvm_ffi.use_raw_stream(self._session.session.device, stream):
                    self._session.run()
            else:
                self._session.run()
            return torch.from_dlpack(self._session.session.output(0)).clone()

    @torch.no_grad()
    def update_module(self) -> None:
        """Write the trained parameters and the moving statistics back into the module, and the
        optimizer's state into the optimizer."""
        held = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        for name, target in self._state.items():
            held[target].copy_(self._value(name))
        if self._steps:
            self._kept.store(self._value, COUNT)
        for name, count in self._counts.items():
            held[name].add_(count * self._steps)
        self._steps = 0

    def _initial_values(
        self, step: StepNames, held: Mapping[str, torch.Tensor]
    ) -> dict[str, np.ndarray]:
        """State by name: the module's, what the optimizer keeps already, and a random seed."""
        values = {name: _numpy(held[at]) for name, at in self._state.items()}
        values |= {name: _numpy(t) for name, t in self._kept.values(COUNT).items()}
        if RANDOM in step.state:
            seed = torch.randint(2**31 - 1, ())  # by torch.manual_seed
            values[RANDOM] = np.array([int(seed), 0], "int32")
        return values

    def _value(self, name: str) -> torch.Tensor:
        """State, by name, in the session's memory."""
        return torch.from_dlpack(self._session.session.input(name))


class _Loss(torch.nn.Module):
    """The loss as a function of the tensors of a batch, the trained parameters and the moving
    statistics, whose new values are further results."""

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Callable[..., Any],
        batch: Structure,
        count: int,
        trained: list[str],
        moved: list[str],
        counts: dict[str, int],
    ) -> None:
        """``counts`` is given how often a step writes to buffers of integers, by name."""
        super().__init__()
        self.loss, self.names, self.moved = loss, [*trained, *moved], moved
        self.batch, self.count = batch, count
        self.called = [module]  # in a list, so that its parameters are not this module's
        # In a function, since a trace puts back what it changes among the attributes.
        self.counts: Callable[[], dict[str, int]] = lambda: counts

    def forward(self, *tensors: torch.Tensor) -> Any:
        inputs, targets = unflatten(self.batch, tensors[: self.count])
        held = zip(self.names, tensors[self.count :], strict=True)
        values = {name: tensor.clone() for name, tensor in held}
        others = {n: b.clone() for n, b in self.called[0].named_buffers() if n not in values}
        values |= others
        args = inputs if isinstance(inputs, tuple) else (inputs,)
        args, kwargs = ((), inputs) if isinstance(inputs, dict) else (args, {})
        result = torch.func.functional_call(self.called[0], values, args, kwargs)
        for name, before in others.items():
            if before._version or values[name] is not before:
                counts = self.counts()
                counts[name] = max(before._version, counts.get(name, 0))
        return (self.loss(result, targets), *(values[name] for name in self.moved))


def _check_momentum(module: torch.nn.Module) -> None:
    """Raise UnsupportedOp for a batch norm whose momentum differs from step to step."""
    for name, part in module.named_modules():
        counts = isinstance(part, _BATCH_NORM) and part.training and part.track_running_stats
        if counts and part.momentum is None:
            raise UnsupportedOp(
                f"the batch norm {name!r} with momentum=None, the mean of all steps",
                "a momentum",
                "Set the layer's momentum, such as 0.1.",
            )


def _check_counts(module: torch.nn.Module, counts: Mapping[str, int]) -> None:
    """Raise UnsupportedOp for changed buffers of integers but those that count the batches of a
    batch norm, which nothing in a step reads."""
    for name in counts:
        if not isinstance(module.get_submodule(name.rpartition(".")[0]), _BATCH_NORM):
            raise UnsupportedOp(
                f"a module that changes the integers {name!r} in a step",
                "state of floating-point numbers",
                "Make it a buffer of float32, or change it between the steps.",
            )


def _step(
    program: ExportedProgram,
    inputs: list[str],
    weights: Mapping[str, torch.nn.Parameter],
    moving: list[str],
    optimizer: torch.optim.Optimizer,
    scaling: Scaling,
    report: Stages,
) -> Source:
    """The step of a traced loss, to be converted and differentiated where no earlier build has it.

    Args:
        inputs: Names of the batch's tensors; those of ``weights`` and ``moving`` follow.
    """

    def module() -> tvm.IRModule:
        with report.stage("import"):
            imported = to_relax(program, training=True)
        network = _without_unused(imported, [*inputs, *weights, *moving], [*inputs, *moving])
        used = {param.name for param in network["main"].params}
        learned = {name: weight for name, weight in weights.items() if name in used}
        updates = {name: 1 + i for i, name in enumerate(moving)}
        groups = groups_of(optimizer, learned)
        return train_step(network, [*learned], groups, updates, scaling).module

    def content() -> list[str] | None:
        texts = program_content(program)
        rule = str((groups_of(optimizer, weights), scaling, inputs, moving))
        return None if texts is None else [rule, *texts]

    return Source(module, content)


def _without_unused(mod: tvm.IRModule, names: list[str], kept: Sequence[str]) -> tvm.IRModule:
    """The module without parameters that nothing reads, but for those ``kept``: PyTorch leaves them
    alone, where an update would decay them.

    Raises UnsupportedOp if the parameters are not those of the traced program by ``names``.
    """
    gv, func = main_function(mod)
    if [param.name for param in func.params] != names:  # complex numbers have become pairs
        raise UnsupportedOp("complex numbers in a training step", "real numbers")
    uses = count_uses(func)
    params = [param for param in func.params if uses[param] or param.name in kept]
    new = relax.Function(params, func.body, func.ret_ty, func.is_pure, func.attrs)
    return tvm.IRModule({**mod.functions, gv: new}, attrs=mod.attrs)


def _numpy(tensor: torch.Tensor) -> Any:
    """A copy in host memory; bfloat16 by way of float32, which holds every value of it."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.numpy().copy()
