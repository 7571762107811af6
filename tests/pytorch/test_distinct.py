"""Programs that are decomposed in parts compute what PyTorch does."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

from convoy.pytorch.distinct import decompose

Function = Callable[[torch.Tensor], torch.Tensor]
TABLE = torch.export.default_decompositions()


class Module(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.fixture
def decomposed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the graphs that PyTorch decomposes."""
    sizes: list[int] = []
    run = torch.export.ExportedProgram.run_decompositions

    def counted(self: torch.export.ExportedProgram, *args: object) -> torch.export.ExportedProgram:
        sizes.append(len(self.graph.nodes))
        return run(self, *args)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", counted)
    return sizes


def check(module: nn.Module, x: torch.Tensor) -> torch.export.ExportedProgram:
    """Compare a decomposed module with the module, and return its program."""
    with torch.no_grad():
        left, written = x.clone(), x.clone()
        expected = module(left)
        program = decompose(torch.export.export(module, (x,)), TABLE)
        torch.testing.assert_close(program.module()(written), expected)
        torch.testing.assert_close(written, left)
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        assert schema is None or not schema.is_mutable
    return program


def test_layers_of_a_kind_are_decomposed_once(decomposed: list[int]) -> None:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(10)]
    program = check(nn.Sequential(*layers).eval(), torch.randn(2, 8))
    assert len(decomposed) == 1
    assert decomposed[0] < len(program.graph.nodes) / 4


def test_what_repeats_nothing_is_decomposed_whole(decomposed: list[int]) -> None:
    program = torch.export.export(nn.LayerNorm(8), (torch.randn(1, 8),))
    decompose(program, TABLE)
    assert decomposed == [len(program.graph.nodes)]


def test_effects_are_decomposed_whole(decomposed: list[int]) -> None:
    program = torch.export.export(Module(lambda x: torch.linalg.lu_factor(x)[0]), (torch.eye(3),))
    decompose(program, TABLE)
    assert len(decomposed) == 2


def test_core_operators_are_not_decomposed(decomposed: list[int]) -> None:
    layers = [
        *(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        *(nn.Conv2d(4, 4, 3, dilation=2, groups=2), nn.BatchNorm2d(4, affine=False), nn.GELU()),
        *(Module(lambda x: x.permute(0, 1, 3, 2).select(3, 0)), nn.Conv1d(4, 2, 1), nn.Sigmoid()),
    ]
    check(nn.Sequential(*layers, Module(lambda x: x * x + x)).eval(), torch.randn(2, 3, 16, 16))
    assert not decomposed


def test_equal_and_different_operands() -> None:
    check(repeated(lambda x: (x * x).sin() * (x + 1).cos()), torch.randn(4, 4))


def test_rules_for_core_operators_count(decomposed: list[int]) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.add(torch.add(x, x), x, alpha=2)
        return x

    table = torch.export.default_decompositions()
    rule = lambda a, b, *, alpha=1: NotImplemented if alpha == 1 else a + b * alpha  # noqa: E731
    table.update({torch.ops.aten.add.Tensor: rule})
    program = decompose(torch.export.export(Module(run), (torch.randn(4),)), table)
    assert len(decomposed) == 1
    assert not any("alpha" in node.kwargs for node in program.graph.nodes)


def test_results_in_place_keep_their_type() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        half = x.to(torch.float16)
        half.add_(x).relu_()
        whole = x.to(torch.int32)
        whole.mul_(whole).add_(1)
        return half + whole

    check(Module(run), torch.randn(4, 4))


def repeated(step: Function) -> Module:
    """A step often enough that it is worth decomposing once."""

    def run(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        for _ in range(8):
            x = step(x)
        return x

    return Module(run)


def part(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y[1:, 2] += x[1:, 3]
    y[:, 0] = 3
    return torch.sin(y)


def both(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    z = y.relu_()
    return y + z


def kept_view(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x)
    flat = y.view(-1)
    y.add_(1)
    return y + flat.reshape(4, 4)


def copied_from(x: torch.Tensor) -> torch.Tensor:
    y, z = x + 1, x + 2
    y.copy_(z)
    y.add_(1)
    return y * z


def transposed(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x)
    y.t().mul_(2)
    return y


def strided(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x[1:]).as_strided((4, 4), (1, 2)) + x


@pytest.mark.parametrize("step", [part, both, kept_view, copied_from, transposed, strided])
def test_writes_in_place(step: Function) -> None:
    check(repeated(step), torch.randn(4, 4))


def test_an_input_that_is_written_to() -> None:
    module = Module(lambda x: x.add_(1).sin() + x.sin().sin().sin().sin())
    program = check(module, torch.randn(4, 4))
    assert program.graph_signature.user_inputs_to_mutate


def test_statistics_that_move(decomposed: list[int]) -> None:
    """One norm stands for the eight; one of them, which is called twice, moves twice."""
    norm = nn.BatchNorm1d(4)
    norms = nn.Sequential(norm, *(nn.BatchNorm1d(4) for _ in range(7)), norm)
    x = torch.randn(4, 4)
    exported = torch.export.export(norms, (x,))
    program = decompose(exported, TABLE)
    assert len(decomposed) == 1
    assert decomposed[0] < len(exported.graph.nodes) / 4
    called = program.module()
    torch.testing.assert_close(called(x), norms(x))
    changed = {*program.graph_signature.buffers_to_mutate.values()}
    assert len(changed) == len([*norms.buffers()])
    for name in changed:
        torch.testing.assert_close(called.get_buffer(name), norms.get_buffer(name))


def test_strides_that_differ_from_the_traced() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        q = x.reshape(1, 4, 2, 8).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(q, q, q)
        return y.permute(2, 0, 1, 3).contiguous().view(4, 16)

    check(repeated(attend), torch.randn(4, 16))


OPERATIONS: tuple[Function, ...] = (
    lambda x: x.add_(1),
    lambda x: x.relu_(),
    lambda x: x.mul_(0.5),
    lambda x: x[1:].add_(2),
    lambda x: x[:, 0].fill_(3),
    lambda x: x.t(),
    lambda x: x.view(16).view(4, 4) if x.is_contiguous() else x,
    lambda x: x.reshape(4, 4),
    lambda x: x.contiguous(),
    lambda x: x.clone(),
    lambda x: x.to(torch.float32),
    lambda x: torch.sin(x),
    lambda x: nn.functional.silu(x, inplace=True),
    lambda x: x.flatten()[:4].mul_(0.5),
    lambda x: x.unsqueeze(0).squeeze(0),
    lambda x: torch.cat([x]),
    lambda x: nn.functional.pad(x, (0, 0)),
    lambda x: x.chunk(1)[0],
)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("writes_input", [False, True])
def test_random_views_and_writes(seed: int, writes_input: bool) -> None:
    draw = random.Random(seed)
    steps = [(draw.choice(OPERATIONS), draw.random(), draw.random()) for _ in range(6)]

    def run(x: torch.Tensor) -> torch.Tensor:
        values = [x if writes_input else x + 1, torch.cos(x)]
        for operation, source, other in 4 * steps:
            value = values[int(source * len(values))]
            made = operation(value)
            if made.shape == x.shape:
                values.append(made)
            values.append(values[int(other * len(values))] + value)
        return torch.stack(values)

    check(Module(run), torch.randn(4, 4))
