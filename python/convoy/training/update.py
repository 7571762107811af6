"""The update at the end of a training step: optimizers, loss scaling, clipped gradients.

What all parameters share (learning rates, corrections of Adam, the factor of the gradients) is one
vector, so that the updates of all parameters can be one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.relax import op

from ..errors import InvalidOption
from ..graph.expr import shape_of
from ..ops.optimizer import adam_corrections, optimizer_update, squared_norm
from .names import COUNT, FINITE, LEARNING_RATE, RANDOM, SCALE, slot_names
from .optimizers import Adam, Group

#: Finite updates after which the loss scale is doubled, as by torch.amp.GradScaler.
_INTERVAL = 2000.0


@dataclass(frozen=True)
class Scaling:
    """Loss scaling and clipping of gradients before the update.

    Attributes:
        clip_norm: Gradients whose norm, of all together, is larger are scaled down to it.
        loss_scale: Factor of the loss, by which gradients are divided in float32. "dynamic" starts
            large and halves it where a gradient overflows; the update is then left out.
    """

    clip_norm: float | None = None
    loss_scale: float | str = 1.0

    def __post_init__(self) -> None:
        scale, clip = self.loss_scale, self.clip_norm
        if scale != "dynamic" and (isinstance(scale, str) or not scale > 0):
            raise InvalidOption(f"loss_scale={scale!r}", "a positive number or 'dynamic'")
        if clip is not None and not clip > 0:
            raise InvalidOption(f"clip_norm={clip!r}", "a positive number or None")

    @property
    def dynamic(self) -> bool:
        return self.loss_scale == "dynamic"


class Update:
    """New values of parameters and of the state of their optimizers.

    Attributes:
        rate: The input for the learning rates, a scalar where there is one.
        slots: Variables of the optimizers' state by parameter.
        shared: Those of state that is not a parameter's.

    With ``random`` there is a state of random numbers among those that are shared.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        weights: Mapping[str, relax.Var],
        scaling: Scaling,
        random: bool = False,
    ) -> None:
        self._scaling, self._weights = scaling, weights
        self._groups = {name: group for group in groups for name in group.names}
        rates = 1 + max(group.rate for group in groups)
        self.rate = _variable(LEARNING_RATE, () if rates == 1 else (rates,))
        names = slot_names(groups)
        self.slots = {
            name: [relax.Var(slot, w.ty) for slot in names[name]] for name, w in weights.items()
        }
        adam = any(isinstance(group.optimizer, Adam) for group in groups)
        shared = [COUNT] * adam + [SCALE, FINITE] * scaling.dynamic
        self.shared = {name: _variable(name, ()) for name in shared}
        if random:
            self.shared[RANDOM] = relax.Var(RANDOM, relax.TensorType((2,), "int32"))

    def loss_scale(self) -> relax.Expr | None:
        """Return the factor of the loss; None for 1."""
        scale = self._scaling.loss_scale
        if isinstance(scale, str):
            return self.shared[SCALE]
        return None if scale == 1 else _number(scale)

    def emit(
        self, builder: relax.BlockBuilder, gradients: Mapping[str, relax.Expr]
    ) -> list[relax.Expr]:
        """New values of parameters, of their slots by name, and of the shared state, in order."""
        scalars = _Scalars(builder)
        rates = scalars.add(self.rate)
        scale, applies = self._coefficient(builder, list(gradients.values()))
        at = {
            "scale": -1 if scale is None else scalars.add(scale),
            "applies": -1 if applies is None else scalars.add(applies),
        }
        corrections = self._corrections(scalars)
        vector = scalars.vector()
        new = []
        for name, w in self._weights.items():
            group = self._groups[name]
            fields = {**at, **group.optimizer.attributes(), "rate": rates + group.rate}
            if isinstance(group.optimizer, Adam):
                fields["corrections"] = corrections[group.optimizer.betas]
            made = optimizer_update(
                w, gradients[name], self.slots[name], vector, group.optimizer.rule, **fields
            )
            both = builder.emit(made)
            count = 1 + len(self.slots[name])
            new.append([builder.emit(relax.TupleGetItem(both, i)) for i in range(count)])
        slots = [value for _, *values in new for value in values]
        return [*(w for w, *_ in new), *slots, *self._new_shared(builder, applies)]

    def _corrections(self, scalars: _Scalars) -> dict[tuple[float, float], int]:
        """Add the corrections of Adam; return the index of each pair by betas."""
        found: dict[tuple[float, float], int] = {}
        for group in self._groups.values():
            if isinstance(group.optimizer, Adam) and group.optimizer.betas not in found:
                pair = adam_corrections(self.shared[COUNT], *group.optimizer.betas)
                found[group.optimizer.betas] = scalars.add(pair)
        return found

    def _coefficient(
        self, builder: relax.BlockBuilder, gradients: Sequence[relax.Expr]
    ) -> tuple[relax.Expr | None, relax.Expr | None]:
        """Return a factor of the gradients, and whether the update counts (1 or 0); None for 1."""
        scale, clip = self.loss_scale(), self._scaling.clip_norm
        factor = None if scale is None else builder.emit(op.divide(_number(1), scale))
        if clip is None and not self._scaling.dynamic:
            return factor, None
        squares = builder.emit(squared_norm(gradients))
        applies = None
        if self._scaling.dynamic:
            finite = builder.emit(op.isfinite(squares))
            applies = builder.emit(op.where(finite, _number(1), _number(0)))
        if clip is not None:
            norm = builder.emit(op.sqrt(squares))
            norm = norm if factor is None else builder.emit(op.multiply(norm, factor))
            ratio = builder.emit(op.divide(_number(clip), op.add(norm, _number(1e-6))))
            ratio = builder.emit(op.minimum(ratio, _number(1)))
            factor = ratio if factor is None else builder.emit(op.multiply(ratio, factor))
        return factor, applies

    def _new_shared(
        self, builder: relax.BlockBuilder, applies: relax.Expr | None
    ) -> list[relax.Expr]:
        """Count updates; double the loss scale after many finite ones, halve it after another."""
        new = {}
        if COUNT in self.shared:
            one = _number(1) if applies is None else applies
            new[COUNT] = builder.emit(op.add(self.shared[COUNT], one))
        if applies is not None:
            scale = self.shared[SCALE]
            finite = builder.emit(op.add(self.shared[FINITE], _number(1)))
            finite = builder.emit(op.multiply(finite, applies))
            grows = builder.emit(op.equal(finite, _number(_INTERVAL)))
            kept = builder.emit(op.where(grows, op.multiply(scale, _number(2)), scale))
            halved = builder.emit(op.multiply(scale, _number(0.5)))
            counts = builder.emit(op.greater(applies, _number(0)))
            new[SCALE] = builder.emit(op.where(counts, kept, halved))
            new[FINITE] = builder.emit(op.where(grows, _number(0), finite))
        if RANDOM in self.shared:
            new[RANDOM] = builder.emit(op.add(self.shared[RANDOM], relax.const([0, 1], "int32")))
        return [new[name] for name in self.shared]


class _Scalars:
    """A vector that is put together from scalars and short vectors."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self._parts: list[relax.Expr] = []
        self._count = 0

    def add(self, expr: relax.Expr) -> int:
        """Append a part and return the index of its first number."""
        part = self._builder.emit(op.reshape(self._builder.normalize(expr), (-1,)))
        self._parts.append(part)
        self._count += shape_of(part)[0]
        return self._count - shape_of(part)[0]

    def vector(self) -> relax.Expr:
        if len(self._parts) == 1:
            return self._parts[0]
        return self._builder.emit(op.concat(self._parts, axis=0))


def _variable(name: str, shape: tuple[int, ...]) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, "float32"))


def _number(value: float) -> relax.Expr:
    return relax.const(value, "float32")
