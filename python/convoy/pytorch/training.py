"""A training step of a PyTorch module as one compiled function: forward, backward, update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import pipeline
from ..build_cache.source import Source
from ..errors import InvalidOption
from ..progress import stages
from ..training import Sgd, TrainingSession, train_step
from ..training.step import LEARNING_RATE, StepNames
from .importer import precision_of, trace
from .module import device_of
from .runner import Turns
from .structure import flatten

if TYPE_CHECKING:
    import tvm


def compile_training_step(
    module: torch.nn.Module,
    loss: Callable[[Any, Any], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    precision: str | None = None,
    **options: Any,
) -> TrainingStep:
    """Compile ``loss(module(inputs), targets)``, its gradients and the optimizer's update.

    Args:
        module: As it is to be trained: in training mode batch norms use the statistics of the
            batch and update their own.
        loss: From the module's result and the targets to a scalar.
        optimizer: A ``torch.optim.SGD`` of the module's parameters. Its learning rate is read at
            every step, so that schedulers work.
        inputs, targets: Examples; later batches have their shapes and dtypes.
        precision: As for :func:`convoy.compile`; parameters stay in the module's dtype.
        options: Those of :func:`convoy.build`.

    Raises:
        InvalidOption: Another optimizer, or settings of it that the compiled update has not.
        UnsupportedOp: An operator that cannot be converted or differentiated; also dropout.
    """
    return TrainingStep(module, loss, optimizer, (inputs, targets), precision, options)


class TrainingStep:
    """A compiled step; parameters live in it until :meth:`update_module`."""

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Callable[[Any, Any], torch.Tensor],
        optimizer: torch.optim.Optimizer,
        batch: tuple[torch.Tensor, torch.Tensor],
        precision: str | None,
        options: Mapping[str, Any],
    ) -> None:
        self.module, self.optimizer, self._steps = module, optimizer, 0
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        moved = {n: b for n, b in module.named_buffers() if b.is_floating_point()}
        held = [*trained.values(), *moved.values()]
        flat = _Loss(module, loss, [*trained], [*moved])
        tensors, structure = flatten((tuple(t.detach() for t in (*batch, *held)), {}))
        report = stages(options.get("progress"))
        rule = _sgd(optimizer, trained)
        with report.stage("trace"):
            traced = trace(flat, structure, tensors)
        network = _step(traced.source(report), len(batch), len(trained), rule)
        self.device = device_of(module, batch)
        on_gpu = self.device.type == "cuda"
        precision = precision or precision_of(module, batch)
        target, options = "cuda" if on_gpu else "llvm", {**options, "progress": report}
        self.built = pipeline.build_source(network, target, precision=precision, **options)
        names = [info.name for info in self.built.meta.inputs]
        count = len(batch) + 1  # and the learning rate
        step = StepNames(
            tuple(names[:count]), tuple(names[count:]), tuple(names[count:][: len(trained)])
        )
        self._inputs = names[: len(batch)]
        moving = step.state[len(step.state) - len(moved) :]
        self._state = dict(zip([*step.trainable, *moving], [*trained, *moved], strict=True))
        import tvm

        device = tvm.cuda(self.device.index) if on_gpu else None
        values = {name: _numpy(t) for name, t in zip(self._state, held, strict=True)}
        self._session = TrainingSession(self.built, step, values, 0.0, device)
        self._turns = Turns()
        session = self._session.session
        self._buffers = [torch.from_dlpack(session.input(name)) for name in self._inputs]
        self._rate = torch.from_dlpack(session.input(LEARNING_RATE))

    def __call__(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One step; the loss before the update, as a tensor on the module's device."""
        for given, buffer in zip((inputs, targets), self._buffers, strict=True):
            if (given.shape, given.dtype) != (buffer.shape, buffer.dtype):
                raise InvalidOption(
                    f"{given.dtype} {tuple(given.shape)}", f"{buffer.dtype} {tuple(buffer.shape)}"
                )
        with self._turns.lock:
            self._steps += 1
            on_gpu = self.device.type == "cuda"
            stream = self._turns.follow(self.device.index) if on_gpu else 0
            self._rate.fill_(self.optimizer.param_groups[0]["lr"])
            for given, buffer in zip((inputs, targets), self._buffers, strict=True):
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
        """Write the trained parameters and the moving statistics back into the module."""
        held = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        for name, target in self._state.items():
            held[target].copy_(torch.from_dlpack(self._session.session.input(name)))
        for name, buffer in self.module.named_buffers():
            if name.endswith("num_batches_tracked") and self.module.training:
                buffer.add_(self._steps)
        self._steps = 0


class _Loss(torch.nn.Module):
    """The loss as a function of a batch, the trained parameters and the moving statistics, whose
    new values are further results."""

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Callable[..., Any],
        trained: list[str],
        moved: list[str],
    ) -> None:
        super().__init__()
        self.loss, self.names, self.moved = loss, [*trained, *moved], moved
        self.called = [module]  # in a list, so that its parameters are not this module's

    def forward(self, inputs: Any, targets: Any, *held: torch.Tensor) -> Any:
        values = {name: tensor.clone() for name, tensor in zip(self.names, held, strict=True)}
        for name, buffer in self.called[0].named_buffers():
            values.setdefault(name, buffer.clone())
        result = torch.func.functional_call(self.called[0], values, (inputs,))
        return (self.loss(result, targets), *(values[name] for name in self.moved))


def _step(network: Source, inputs: int, trained: int, rule: Sgd) -> Source:
    """The training step of a loss, whose parameters are ``inputs`` tensors of a batch, ``trained``
    ones and moving statistics, to be differentiated where no earlier build has it."""

    def module() -> tvm.IRModule:
        imported = network.module()
        names = [param.name for param in imported["main"].params]
        updates = {name: 1 + i for i, name in enumerate(names[inputs + trained :])}
        return train_step(imported, names[inputs : inputs + trained], rule, updates).module

    def content() -> Sequence[str] | None:
        texts = network.content()
        return None if texts is None else [f"step {inputs} {trained} {rule}", *texts]

    return Source(module, content)


def _sgd(optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.Tensor]) -> Sgd:
    """The optimizer as the compiled update has it; raises InvalidOption for any other."""
    if type(optimizer) is not torch.optim.SGD:
        raise InvalidOption(f"the optimizer {type(optimizer).__name__}", "torch.optim.SGD")
    groups = optimizer.param_groups
    for key in ("lr", "momentum", "nesterov"):
        if len({group[key] for group in groups}) > 1:
            raise InvalidOption(f"parameter groups that differ in {key}", "one value for all")
    if any(group["dampening"] or group["maximize"] for group in groups):
        raise InvalidOption("SGD with dampening or maximize", "neither")
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    if missing := [name for name, p in trained.items() if id(p) not in decays]:
        raise InvalidOption(f"an optimizer without {missing[0]}", "all parameters that train")
    weights = {decays[id(p)] for p in trained.values() if p.ndim > 1}
    others = {decays[id(p)] for p in trained.values() if p.ndim <= 1}
    if len(weights) > 1 or others - {0}:
        raise InvalidOption(
            "weight decay that is not the same for all weights, or is there for biases and norms",
            "one value for parameters of two dimensions and more, 0 for the others",
            'SGD([{"params": weights}, {"params": others, "weight_decay": 0}], ...) sets it.',
        )
    group = groups[0]
    decay = weights.pop() if weights else 0.0
    return Sgd(momentum=group["momentum"], weight_decay=decay, nesterov=group["nesterov"])


def _numpy(tensor: torch.Tensor) -> Any:
    """A copy in host memory; bfloat16 by way of float32, which holds every value of it."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.numpy().copy()
