"""Training steps of PyTorch modules against PyTorch's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from convoy import errors

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
cross_entropy = nn.functional.cross_entropy


def sgd(net: Any) -> Any:
    """Decay for weights, none for biases and norms."""
    weights = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": others}]
    return torch.optim.SGD(groups, lr=0.2, momentum=0.9)


def test_steps_are_pytorchs() -> None:
    from convoy.pytorch.training import compile_training_step

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Flatten(), nn.Linear(36, 5),
    )  # fmt: skip
    reference = copy.deepcopy(net)
    optimizers = sgd(net), sgd(reference)
    batches = [(torch.randn(4, 3, 6, 6), torch.randint(0, 5, (4,))) for _ in range(4)]
    step = compile_training_step(net, cross_entropy, optimizers[0], *batches[0])
    for i, (x, labels) in enumerate(batches):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.2 / (1 + i)
        want = cross_entropy(reference(x), labels)
        optimizers[1].zero_grad()
        want.backward()
        optimizers[1].step()
        torch.testing.assert_close(step(x, labels), want.detach(), rtol=1e-5, atol=1e-5)
    step.update_module()
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)
    with pytest.raises(errors.InvalidOption, match="update_module"):
        copy.deepcopy(step)
    with pytest.raises(errors.InvalidOption, match="float64"):
        step(batches[0][0].double(), batches[0][1])


def adamw(net: Any) -> Any:
    """Two groups with learning rates and decays of their own."""
    weights = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": others, "lr": 0.02}]
    return torch.optim.AdamW(groups, lr=0.05)


OPTIMIZERS = {
    "SGD, everything decays": lambda net: torch.optim.SGD(
        net.parameters(), 0.1, momentum=0.9, weight_decay=0.1, nesterov=True
    ),
    "Adam": lambda net: torch.optim.Adam(net.parameters(), 0.05, (0.8, 0.9), weight_decay=0.1),
    "AdamW": adamw,
}


def dense() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def eager_step(net: Any, optimizer: Any, x: Any, labels: Any, clip: float | None = None) -> float:
    optimizer.zero_grad()
    loss = cross_entropy(net(x), labels)
    loss.backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(net.parameters(), clip)
    optimizer.step()
    return float(loss.detach())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_continue_as_pytorchs(name: str) -> None:
    """From the state after a step of PyTorch's, and back."""
    from convoy.pytorch.training import compile_training_step

    net, x, labels = dense(), torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    optimizer = OPTIMIZERS[name](net)
    eager_step(net, optimizer, x, labels)
    reference = copy.deepcopy(net)
    other = OPTIMIZERS[name](reference)
    other.load_state_dict(optimizer.state_dict())
    step = compile_training_step(net, cross_entropy, optimizer, x, labels, clip_norm=0.3)
    for _ in range(2):
        want = eager_step(reference, other, x, labels, 0.3)
        assert float(step(x, labels)) == pytest.approx(want, rel=1e-5)
    step.update_module()
    torch.testing.assert_close(net.state_dict(), reference.state_dict(), rtol=1e-5, atol=1e-6)
    kept, want = (o.state_dict()["state"] for o in (optimizer, other))
    torch.testing.assert_close(kept, want, rtol=1e-4, atol=1e-6)


def test_a_gradient_that_overflows_is_left_out() -> None:
    from convoy.pytorch.training import compile_training_step

    net, labels = nn.Linear(2, 2, bias=False), torch.tensor([1])
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    x, huge = torch.ones(1, 2), torch.full((1, 2), 1e30)
    reference = copy.deepcopy(net)
    step = compile_training_step(net, cross_entropy, optimizer, x, labels, loss_scale="dynamic")
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
    for batch in (huge, x):
        step(batch, labels)
    other = torch.optim.Adam(reference.parameters(), 0.1)
    eager_step(reference, other, x, labels)
    step.update_module()
    torch.testing.assert_close(net.weight, reference.weight)
    assert float(optimizer.state[net.weight]["step"]) == 1


def test_what_does_not_train_stays() -> None:
    """Frozen parameters, those that no optimizer has, and those that the loss does not read, which
    would decay; inputs by name and several targets."""
    from convoy.pytorch.training import compile_training_step

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.held = nn.Linear(3, 3), nn.Linear(3, 3)
            self.unread, self.trained = nn.Linear(3, 3), nn.Linear(3, 2)
            self.frozen.requires_grad_(False)

        def forward(self, x: Any, *, scale: Any) -> Any:
            return {"out": self.trained(self.held(self.frozen(x)) * scale)}

    def loss(result: Any, targets: Any) -> Any:
        return (targets[1] * (result["out"] - targets[0]) ** 2).mean()

    net = Net()
    before = copy.deepcopy(net.state_dict())
    params = [*net.trained.parameters(), *net.unread.parameters(), *net.frozen.parameters()]
    optimizer = torch.optim.SGD(params, 0.1, weight_decay=0.5)
    inputs = {"x": torch.randn(4, 3), "scale": torch.tensor(2.0)}
    targets = (torch.randn(4, 2), torch.rand(4, 2))
    step = compile_training_step(net, loss, optimizer, inputs, targets)
    first = float(step(inputs, targets))
    assert first == pytest.approx(float(loss(net(**inputs), targets)), rel=1e-5)
    step.update_module()
    changed = {k for k, v in net.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {"trained.weight", "trained.bias"}
    with pytest.raises(errors.InvalidOption, match="a batch"):
        step(inputs["x"], targets)


class Detached(nn.Module):
    """Gradients that stop: a straight-through estimate, a target, a row of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.Embedding(4, 3, padding_idx=1), nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        y = self.rows(x)
        with torch.no_grad():
            target = self.head(y) * 2
        rounded = y + (torch.round(y) - y).detach()
        return nn.functional.mse_loss(self.head(rounded), target)


class Statistics(nn.Module):
    """Norms whose statistics move, that have none, that are frozen, or without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.Sequential(
            nn.Conv2d(2, 4, 1), nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
            nn.BatchNorm2d(4, affine=False), nn.Conv2d(4, 3, 1),
            nn.BatchNorm2d(3, track_running_stats=False), nn.BatchNorm2d(3),
        )  # fmt: skip

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norms[5].eval()
        return self

    def forward(self, x: Any) -> Any:
        return (self.norms(x) ** 3).mean()


class Transformer(nn.Module):
    """A spatial transformer: images sampled where a layer says."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Linear(18, 6)

    def forward(self, x: Any) -> Any:
        place = self.where(x.flatten(1)).view(-1, 2, 3) * 0.3 + torch.eye(2, 3)
        grid = nn.functional.affine_grid(place, (3, 2, 4, 4), align_corners=False)
        return (nn.functional.grid_sample(x, grid, align_corners=False) ** 2).mean()


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (Detached, lambda: torch.tensor([0, 1, 3, 1])),
        (Statistics, lambda: torch.randn(3, 2, 3, 3)),
        (Transformer, lambda: torch.randn(3, 2, 3, 3)),
    ],
    ids=["detached", "statistics", "spatial transformer"],
)
def test_what_eager_training_does_besides(make: Any, draw: Any) -> None:
    from convoy.pytorch.training import compile_training_step

    torch.manual_seed(0)
    x = draw()
    net = make().train()
    reference = copy.deepcopy(net)
    optimizer, other = (torch.optim.SGD(n.parameters(), 0.5) for n in (net, reference))
    step = compile_training_step(net, lambda y, _: y, optimizer, x, torch.ones(()))
    for _ in range(2):
        step(x, torch.ones(()))
        other.zero_grad()
        reference(x).backward()
        other.step()
    step.update_module()
    torch.testing.assert_close(net.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-5)


def test_dropout() -> None:
    """The gradient reads the numbers of the loss; they change from step to step, and not from one
    compilation with a seed to the next."""
    from convoy.pytorch.training import compile_training_step

    def masks() -> list[Any]:
        net = nn.Sequential(nn.Linear(1, 900, bias=False), nn.Dropout(0.25))
        nn.init.ones_(net[0].weight)
        optimizer = torch.optim.SGD(net.parameters(), 1.0)
        x, targets, found = torch.ones(1, 1), torch.ones(()), []
        torch.manual_seed(3)
        step = compile_training_step(net, lambda y, t: (y * t).sum(), optimizer, x, targets)
        for _ in range(2):
            before = net[0].weight.detach().clone()
            loss = step(x, targets)
            step.update_module()
            gradient = before - net[0].weight.detach()
            torch.testing.assert_close((gradient * before).sum(), loss, rtol=1e-4, atol=1e-2)
            kept = gradient > 0.5
            torch.testing.assert_close(gradient, kept / 0.75, rtol=1e-4, atol=1e-4)
            found.append(kept)
        return found

    first, again = masks(), masks()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    for kept in first:
        assert 0.68 < float(kept.float().mean()) < 0.82
    assert 0.5 < float((first[0] == first[1]).float().mean()) < 0.75  # 0.625 of independent ones


class Shuffled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x[torch.randperm(len(x))]


def test_what_cannot_be_trained() -> None:
    from convoy.pytorch.training import compile_training_step

    x, labels = torch.randn(2, 3, 4, 4), torch.tensor([0, 1])
    net = nn.Sequential(nn.Conv2d(3, 2, 4), nn.Flatten())
    other = nn.Linear(2, 2)
    cases = [
        (net, torch.optim.RMSprop(net.parameters()), errors.InvalidOption, "RMSprop"),
        (net, torch.optim.Adam(net.parameters(), amsgrad=True), errors.InvalidOption, "amsgrad"),
        (net, torch.optim.SGD(other.parameters(), 0.1), errors.InvalidOption, "other parameters"),
        (nn.Sequential(net, Shuffled()), sgd(net), errors.UnsupportedOp, "random numbers"),
        (net, "sgd", errors.InvalidOption, "a str.*torch.optim.SGD"),
        (net.forward, sgd(net), errors.InvalidOption, "a method.*torch.nn.Module"),
    ]  # fmt: skip
    for module, optimizer, error, message in cases:
        with pytest.raises(error, match=message):
            compile_training_step(module, cross_entropy, optimizer, x, labels)
    wrong = {"loss_scale": 0}, {"loss_scale": "auto"}, {"clip_norm": -1.0}, {"accumulate": 4}
    for options in wrong:
        with pytest.raises(errors.InvalidOption, match=next(iter(options))):
            compile_training_step(net, cross_entropy, sgd(net), x, labels, **options)


class Shared(nn.Module):
    """Calls a batch norm twice in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def forward(self, left: Any, right: Any) -> Any:
        return self.body(left) - self.body(right)


def spectral() -> Any:
    """The new singular vectors do not depend on both old ones."""
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), nn.ReLU())


@pytest.mark.parametrize("make", [Shared, spectral])
def test_state_after_steps(make: Any) -> None:
    from convoy.pytorch.training import compile_training_step

    torch.manual_seed(0)
    net = make()
    reference = copy.deepcopy(net)
    optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (net, reference)]
    count = 2 if make is Shared else 1
    inputs, labels = tuple(torch.randn(5, 4) for _ in range(count)), torch.randint(0, 3, (5,))
    step = compile_training_step(net, cross_entropy, optimizers[0], inputs, labels)
    for _ in range(2):
        got, want = step(inputs, labels), cross_entropy(reference(*inputs), labels)
        torch.testing.assert_close(got, want.detach())
        optimizers[1].zero_grad()
        want.backward()
        optimizers[1].step()
    step.update_module()
    torch.testing.assert_close(dict(net.state_dict()), dict(reference.state_dict()))


def test_counters_that_a_step_would_forget() -> None:
    from convoy.pytorch.training import compile_training_step

    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Any) -> Any:
            self.calls = self.calls + 1
            return super().forward(x) / self.calls

    averaged = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None))
    x, labels = torch.randn(5, 4), torch.randint(0, 3, (5,))
    for net, message in ((Counting(), "integers 'calls'"), (averaged, "momentum=None.*0.1")):
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        with pytest.raises(errors.UnsupportedOp, match=message):
            compile_training_step(net, cross_entropy, optimizer, x, labels)


@pytest.mark.parametrize("shape", [(6,), (3, 4, 5)], ids=["images", "pixels"])
@pytest.mark.parametrize(
    ("ignored", "reduction", "weighed"),
    [(-100, "mean", False), (-100, "sum", True), (255, "mean", True), (255, "sum", False)],
)
def test_labels_that_are_ignored(
    shape: tuple[int, ...], ignored: int, reduction: str, weighed: bool
) -> None:
    from convoy.pytorch.training import compile_training_step

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 7) if len(shape) == 1 else nn.Conv2d(4, 7, 1))
    weight = torch.rand(7) if weighed else None
    loss = nn.CrossEntropyLoss(weight=weight, reduction=reduction, ignore_index=ignored)
    x = torch.randn(shape[0], 4, *shape[1:])
    labels = torch.randint(0, 7, shape)
    labels.view(-1)[::3] = ignored
    reference = copy.deepcopy(net)
    step = compile_training_step(net, loss, torch.optim.SGD(net.parameters(), 0.1), x, labels)
    for _ in range(2):
        want = loss(reference(x), labels)
        other = torch.optim.SGD(reference.parameters(), 0.1)
        want.backward()
        other.step()
        reference.zero_grad()
        assert float(step(x, labels)) == pytest.approx(float(want.detach()), rel=1e-5)
    step.update_module()
    torch.testing.assert_close(net.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-6)
