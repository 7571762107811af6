"""What a training step needs of a program besides its results: where gradients stop, and random
numbers that differ from step to step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.export import ExportedProgram

from ..errors import UnsupportedOp

_aten = torch.ops.aten


@torch.library.custom_op("convoy::stop_gradient", mutates_args=())
def stop_gradient(x: torch.Tensor) -> torch.Tensor:
    """A copy that is a constant to gradients."""
    return x.clone()


@stop_gradient.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op(
    "convoy::uniform", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def uniform(x: torch.Tensor, number: int) -> torch.Tensor:
    """Float32 in [0, 1) of the shape of ``x``; ``number`` tells it from others of a program."""
    return torch.rand(x.shape, device=x.device)


@uniform.register_fake
def _(x: torch.Tensor, number: int) -> torch.Tensor:
    return torch.empty(x.shape, dtype=torch.float32, device=x.device)


def mark(program: ExportedProgram) -> None:
    """Mark where gradients stop, which is lost when a program is decomposed: what is detached, and
    what is computed under ``torch.no_grad()``."""
    graph = program.graph
    stop = torch.ops.convoy.stop_gradient.default
    for node in list(graph.nodes):
        if node.target is _aten.detach.default:
            if any(_writes(user, node) for user in node.users):
                raise UnsupportedOp(
                    "a write to what is detached, such as x.data.clamp_()",
                    "a write to the tensor itself",
                    "Write to x under torch.no_grad().",
                )
            node.target = stop
        elif node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and not node.args[0]:
            given = node.args[2:]
            with graph.inserting_before(node):
                stopped = [_stopped(graph, stop, arg) for arg in given]
            node.args = (*node.args[:2], *stopped)
            part = getattr(program.graph_module, node.args[1].target).graph
            for i, results in _written(part).items():
                if stopped[i] is not given[i]:
                    _pass_gradients(program, node, given[i], stopped[i], results)
    program.graph_module.recompile()


def _written(part: torch.fx.Graph) -> dict[int, list[int]]:
    """Which inputs of a part of a program are written to in place, and which of its results each
    of them is."""
    whole = {node: i for i, node in enumerate(part.find_nodes(op="placeholder"))}
    parts = dict(whole)  # also views of them
    found: dict[int, list[int]] = {}
    for node in part.nodes:
        first = node.args[0] if node.op == "call_function" and node.args else None
        if first not in parts:
            continue
        if _writes(node, first):
            found.setdefault(parts[first], [])
            if first in whole:
                whole[node] = whole[first]
        elif not getattr(node.target, "is_view", False):
            continue
        parts[node] = parts[first]
    for place, result in enumerate(part.output_node().args[0]):
        if whole.get(result) in found:
            found[whole[result]].append(place)
    return found


def _pass_gradients(
    program: ExportedProgram, call: torch.fx.Node, given: Any, written: Any, results: list[int]
) -> None:
    """Let what follows a part without gradients read what it wrote, of which the gradient is that
    of the tensor that it wrote to."""
    graph, stop = program.graph, torch.ops.convoy.stop_gradient.default
    order = {node: i for i, node in enumerate(graph.nodes)}
    after = [user for user in given.users if order[user] > order[call]]
    taken = [user for user in call.users if user.args[1] in results]
    with graph.inserting_before(call.next):
        value, before = _stopped(graph, stop, written), _stopped(graph, stop, given)
        zero = graph.call_function(_aten.sub.Tensor, (given, before))
        passed = graph.call_function(_aten.add.Tensor, (value, zero))
    for node in (value, zero, passed):
        node.meta["val"] = given.meta["val"]
    for user in after:
        user.replace_input_with(given, passed)
    for user in taken:
        user.replace_all_uses_with(passed)
    names = {given.name, *(user.name for user in taken)}
    for spec in program.graph_signature.output_specs:
        if spec.arg.name in names:
            spec.arg.name = passed.name


def _writes(user: torch.fx.Node, to: torch.fx.Node) -> bool:
    """Whether a call writes to its first argument, and that is this one."""
    schema = getattr(user.target, "_schema", None)
    return schema is not None and schema.is_mutable and user.args[0] is to


def _stopped(graph: torch.fx.Graph, stop: Any, arg: Any) -> Any:
    value = arg.meta.get("val") if isinstance(arg, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return arg
    node = graph.call_function(stop, (arg,))
    node.meta["val"] = value
    return node


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Operators that draw random numbers, by ``uniform``, and those that have no gradient."""
    draw = _Draw(itertools.count())
    return {
        _aten.dropout.default: lambda x, p, train: draw.dropped(x, x, p) if train else x,
        _aten.native_dropout.default: lambda x, p, train: (
            (draw.dropped(x, x, p) if train else x),
            torch.ones_like(x, dtype=torch.bool),
        ),
        _aten.feature_dropout.default: lambda x, p, train: (
            draw.dropped(x, x[(...,) + (slice(0, 1),) * (x.dim() - 2)], p) if train else x
        ),
        _aten.bernoulli.p: lambda x, p=0.5: (draw(x) < p).to(x.dtype),
        _aten.bernoulli.default: lambda x: (draw(x) < x).to(x.dtype),
        _aten.rand_like.default: lambda x, **options: draw.like(draw(x), x, options),
        _aten.randn_like.default: lambda x, **options: draw.like(draw.normal(x), x, options),
        _aten.rand.default: lambda size, **options: draw(torch.empty(size)).to(
            options.get("dtype") or torch.float32
        ),
        _aten.randn.default: lambda size, **options: draw.normal(torch.empty(size)).to(
            options.get("dtype") or torch.float32
        ),
        _aten.uniform.default: lambda x, low=0.0, high=1.0: (draw(x) * (high - low) + low).to(
            x.dtype
        ),
        _aten.normal_functional.default: lambda x, mean=0.0, std=1.0: (
            draw.normal(x) * std + mean
        ).to(x.dtype),
        _aten.embedding.default: _embedding,
        **get_decompositions([_aten.grid_sampler_2d.default]),
    }


class _Draw:
    """Random tensors of the shape of another one, each with a number of its own."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.convoy.uniform.default(x, next(self._numbers))

    def normal(self, x: torch.Tensor) -> torch.Tensor:
        """By Box and Muller (1958)."""
        radius = torch.sqrt(-2 * torch.log(1 - self(x)))
        return radius * torch.cos(2 * math.pi * self(x))

    def dropped(self, x: torch.Tensor, like: torch.Tensor, p: float) -> torch.Tensor:
        """``x`` with elements set to zero where those of ``like``, which broadcasts, are."""
        if p >= 1:
            return torch.zeros_like(x)
        return torch.where(self(like) >= p, x * (1 / (1 - p)), 0.0)

    @staticmethod
    def like(values: torch.Tensor, x: torch.Tensor, options: Any) -> torch.Tensor:
        return values.to(options.get("dtype") or x.dtype)


def _embedding(
    weight: torch.Tensor, indices: torch.Tensor, padding: int = -1, *_: Any
) -> torch.Tensor:
    """The row for padding has no gradient."""
    if padding < 0:
        return NotImplemented
    rows = _aten.embedding.default(weight, indices)
    stopped = torch.ops.convoy.stop_gradient.default(rows)
    return torch.where((indices == padding).unsqueeze(-1), stopped, rows)
