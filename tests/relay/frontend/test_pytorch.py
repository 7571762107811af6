"""PyTorch models as Relay, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidModel, InvalidOption, UnsupportedOp

from ..running import run_stock

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Images(nn.Module):
    """Convolutions of several kinds, a shape that is computed, windows with ceil_mode."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.GELU()
        )
        self.depth = nn.Conv2d(8, 8, 3, padding="same", groups=8)
        self.up = nn.ConvTranspose2d(8, 6, 3, 2, output_padding=1)
        self.norm = nn.GroupNorm(2, 6)
        self.slope = nn.PReLU(8)

    def forward(self, x):
        y = self.stem(x)
        y = self.slope(y + self.depth(y))
        z = F.hardswish(self.norm(self.up(y)), inplace=True)
        pooled = F.avg_pool2d(F.max_pool2d(z, 3, 2, 1, ceil_mode=True), 3, 2, 1)
        small = F.adaptive_avg_pool2d(z, (3, 5)).view(z.size(0), -1)
        grown = F.interpolate(pooled, scale_factor=1.7, mode="bilinear", align_corners=False)
        shifted = torch.roll(grown, (1, -2), (2, 3)).flip(3)
        return small, shifted, pooled.mean((2, 3)), z.amax(1), F.pixel_shuffle(y, 2)


class Words(nn.Module):
    """An embedding, both kinds of sequence layers, attention, masks."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 4, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=True)

    def forward(self, ids):
        x = self.table(ids)
        y, (h, _) = self.lstm(x)
        z, _ = self.gru(y)
        mask = ids.unsqueeze(1).eq(0)
        scores = (z @ x.transpose(1, 2)).masked_fill(mask, -1e9)
        best, place = scores.topk(2, -1)
        return self.layer(z + x), h, torch.softmax(scores, -1), best, place


class Writes(nn.Module):
    """Values written in place, to slices and by index, and arithmetic of several dtypes."""

    def forward(self, x, i):
        y = x.clone()
        y[:, 1] = 0.5
        row = y[0]
        row.mul_(2)
        y[:, ::2] += i.float().unsqueeze(1)
        z = torch.zeros(3, 6).index_put((i,), x[:, :1], accumulate=True)[:, : x.shape[1]]
        gathered = x.gather(1, i.unsqueeze(1).expand(-1, 2))
        mixed = x[i][:, [0, -1]] + torch.arange(2) // 2 + i.unsqueeze(1) * 2
        return y, row, z, gathered, mixed, (i / 2, i % 2 == 1, torch.where(i > 1, 1.0, x[:, 1]))


CASES = {
    "images": (Images, [torch.randn(2, 3, 17, 22, generator=torch.manual_seed(0))]),
    "words": (Words, [torch.randint(0, 30, (2, 3))]),
    "writes": (Writes, [torch.randn(3, 5), torch.tensor([2, 0, 1])]),
}


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, torch.Tensor):
        return [value.detach().numpy()]
    return [a for part in value for a in flat(part)]


def infos(inputs: list[Any]) -> list[Any]:
    return [(f"in{i}", (tuple(x.shape), str(x.dtype)[6:])) for i, x in enumerate(inputs)]


def check(model: Any, graph: Any, inputs: list[Any], **options: Any) -> None:
    """Compare with the model itself."""
    with torch.no_grad():
        wanted = flat(model(*(x.clone() for x in inputs)))
    mod, params = relay.frontend.from_pytorch(graph, infos(inputs), **options)
    got = run_stock(mod, *(x.numpy() for x in inputs), params=params)
    assert len(got) == len(wanted)
    for found, want in zip(got, wanted, strict=True):
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "how"),
    [("images", "traced"), ("words", "traced"), ("writes", "traced"), ("images", "exported"),
     ("writes", "exported")],
)  # fmt: skip
def test_models(name: str, how: str) -> None:
    torch.manual_seed(1)
    make, inputs = CASES[name]
    model = make().eval()
    for buffer in model.buffers():
        if buffer.dtype.is_floating_point:
            buffer.data.uniform_(0.5, 1.5)
    if how == "traced":
        graph: Any = torch.jit.trace(model, tuple(x.clone() for x in inputs), check_trace=False)
    else:
        graph = torch.export.export(model, tuple(x.clone() for x in inputs))
    check(model, graph, inputs)


class Scripted(nn.Module):
    """Loops, branches on sizes and on values, lists, optional values."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: torch.Tensor, skip: torch.Tensor):
        parts: list[torch.Tensor] = []
        for number, layer in enumerate(self.layers):
            if number % 2 == 0 and x.dim() == 2:
                x = torch.relu(layer(x))
            else:
                x = layer(x) * float(number)
            parts.append(x[:, number : number + 1])
        if bool(skip.sum() > 0):
            y = x + 1
        else:
            y = x * 2
        return torch.cat(parts, 1), y


def test_parts_and_reversed_axes() -> None:
    """`T` reverses all axes; indices of `tensor_split` are those of slices."""

    def model(x):
        parts = [
            *x.split((1, 2), 1), *x.split(3, 2), *x.chunk(2, 2), *x.unbind(0),
            *torch.tensor_split(x, 3, 2), *torch.tensor_split(x, (2, 5, 4, -1, 20), 2),
            *torch.tensor_split(x, torch.tensor([1, 3]), 2),
        ]  # fmt: skip
        return x.T, x[0].T, *(p + 1 for p in parts)

    x = torch.arange(42.0).reshape(2, 3, 7)
    check(model, torch.jit.trace(model, x), [x])


def test_scripted_control_flow() -> None:
    torch.manual_seed(2)
    model = Scripted().eval()
    graph = torch.jit.script(model)
    for value in (1.0, -1.0):
        check(model, graph, [torch.randn(2, 4), torch.tensor([value])])


@torch.jit.script
def _new_tensors(x: torch.Tensor):
    none: list[float] = []
    rows, columns = x.shape[0], x.shape[1]
    sizes = torch.tensor([rows, columns], dtype=torch.float32)
    chosen = x.index_select(1, torch.tensor([0, 2]))
    pairs = torch.tensor([[1.0, 2.0], [3.0, 4.0]]) @ x
    empty, half = torch.tensor(none), torch.as_tensor(x, dtype=torch.float16)
    return sizes, chosen, pairs, empty, half, torch.tensor(rows > 1), torch.scalar_tensor(rows)


def test_scripted_new_tensors() -> None:
    check(_new_tensors, _new_tensors, [torch.randn(2, 3)])


def _counts(x: torch.Tensor):
    distinct = torch.unique(x, return_inverse=True, return_counts=True)
    weights = torch.arange(6).reshape(x.shape) * 0.5
    many = torch.bincount(x[0], minlength=9), torch.bincount(x[1]), torch.bincount(x[1], weights[1])
    return *distinct, *many, torch._shape_as_tensor(x) + x[0, :2]


def test_counts() -> None:
    x = torch.tensor([[3, 0, 3], [1, 4, 1]])
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(_counts, x), infos([x]))
    got = relay.create_executor("vm", mod=mod).evaluate()(x.numpy(), **params)
    for found, wanted in zip(got, _counts(x), strict=True):
        assert found.dtype == str(wanted.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize("options", [{}, {"win_length": 11, "normalized": True, "center": False}])
def test_stft(options: dict[str, Any]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(options.get("win_length", 16))
        return torch.stft(x, 16, 5, window=window, return_complex=False, **options)

    x = torch.randn(2, 40)
    check(model, torch.jit.trace(model, x), [x])


class Branches(nn.Module):
    """Writes in place inside of branches, of loops, and through views."""

    def forward(self, x: torch.Tensor):
        y = x.clone()
        row = y[1]
        last = y * 1
        for _ in range(3):
            b = y * 2.0
            if bool(b.sum() > 0):
                y -= b
                last = last + row
            elif bool(b.max() > 3):
                row.mul_(2)
                b.add_(1)
            else:
                y += 1
        if bool(x.sum() > 100):
            y[0] = 0
        return y, row, last


@pytest.mark.parametrize("shift", [2.0, -1.0, -9.0])
def test_writes_in_branches(shift: float) -> None:
    x = torch.arange(6.0).reshape(2, 3) + shift
    model = Branches()
    mod, params = relay.frontend.from_pytorch(torch.jit.script(model), infos([x]))
    run = relay.create_executor("vm", mod, target="llvm", params=params).evaluate()
    for found, want in zip(run(x.numpy()), flat(model(x)), strict=True):
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-5)


class Either(nn.Module):
    """A tensor that is another one, or a new one, and is written to, whole or in part."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x: torch.Tensor):
        y = x.clone()
        if bool(x.sum() > 0):
            z = y
        else:
            z = y * 2
        if self.whole:
            z += 1
        else:
            z[0] = 1
        return y, z


@pytest.mark.parametrize("whole", [True, False])
def test_writes_to_what_depends_on_values_are_refused(whole: bool) -> None:
    with pytest.raises(UnsupportedOp, match="one branch"):
        relay.frontend.from_pytorch(torch.jit.script(Either(whole)), [("x", (2, 3))])


def test_results_whose_size_depends_on_values() -> None:
    def model(x):
        mask = x > 0
        rows = x.sum(1) > 2
        return (
            torch.nonzero(mask), *torch.where(mask), x.masked_select(mask[:1]), x.nonzero()[:, 0],
            x[mask], x[rows], x.unsqueeze(0)[:, rows], x.t()[:, rows],
        )  # fmt: skip

    x = torch.tensor([[1.0, -2.0, 3.0], [0.0, 4.0, -1.0]])
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(model, x), infos([x]))
    run = relay.create_executor("vm", mod, target="llvm", params=params).evaluate()
    for value in (x, x + 2):  # of other sizes
        for found, want in zip(run(value.numpy()), flat(model(value)), strict=True):
            assert found.dtype == want.dtype
            np.testing.assert_array_equal(found.numpy(), want)


class Slices(nn.Module):
    """Slices whose bounds are an input."""

    def __init__(self, bounds: str) -> None:
        super().__init__()
        self.bounds = bounds

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        if self.bounds == "end":
            return x[:n] * 2
        if self.bounds == "both":
            return x[n - 1 : n + 1, ::2]
        return torch.narrow(x, 1, n, 2)


def check_slices(graph: Any, model: Any, bounds: range) -> None:
    inputs = [("x", ((4, 3), "float32")), ("n", ((), "int64"))]
    mod, params = relay.frontend.from_pytorch(graph, inputs)
    run = relay.create_executor("vm", mod=mod).evaluate()
    x = torch.randn(4, 3)
    for n in bounds:
        expected = model(x, torch.tensor(n)).numpy()
        np.testing.assert_array_equal(run(x.numpy(), np.int64(n), **params).numpy(), expected)


@pytest.mark.parametrize(
    ("which", "bounds"), [("end", range(-5, 6)), ("both", range(-2, 6)), ("narrow", range(2))]
)
def test_bounds_that_are_inputs(which: str, bounds: range) -> None:
    model = Slices(which)
    graph = torch.jit.trace(model, (torch.ones(4, 3), torch.tensor(1)))
    check_slices(graph, model, bounds)


def _scripted_slice(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if int(n) > 1:
        return x[1 - int(n) :] + 1
    return x[int(n) :]


def test_bounds_of_a_script() -> None:
    check_slices(torch.jit.script(_scripted_slice), _scripted_slice, range(-5, 6))


def test_writes_between_bounds_that_are_inputs_are_refused() -> None:
    def write(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        part = x[n:]
        part += 1
        return x

    graph = torch.jit.trace(write, (torch.ones(4, 3), torch.tensor(1)))
    with pytest.raises(UnsupportedOp, match="aten::slice: a number that is computed at run time"):
        relay.frontend.from_pytorch(graph, [("x", (4, 3)), ("n", ((), "int64"))])


def test_operators_without_a_converter_are_decomposed() -> None:
    class Model(nn.Module):
        def forward(self, x):
            return F.huber_loss(x, x * 2), torch.logaddexp(x, -x), F.cosine_similarity(x, x.flip(1))

    assert "aten::logaddexp" not in relay.frontend.pytorch.converted_ops()
    x = torch.rand(2, 3)
    check(Model(), torch.jit.trace(Model(), x), [x])


def test_converters_of_the_user_come_first() -> None:
    graph = torch.jit.trace(lambda x: torch.relu(x) + 1, torch.randn(2))

    def negated(inputs: list[Any], types: list[str]) -> Any:
        assert types[0] == "float32"
        return relay.negative(inputs[0])

    custom = {"aten::relu": negated}
    mod, _ = relay.frontend.from_pytorch(graph, [("x", (2,))], custom)
    np.testing.assert_allclose(run_stock(mod, np.float32([1, 2]))[0], [0, -1])


def test_names_of_inputs_and_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 2)).eval()
    graph = torch.jit.trace(model, torch.randn(1, 3))
    mod, params = relay.frontend.from_pytorch(graph, [("data", (1, 3))])
    assert [v.name_hint for v in mod["main"].params] == ["data", "0.weight", "0.bias"]
    assert set(params) == {"0.weight", "0.bias"}
    mod, params = relay.frontend.from_pytorch(
        graph, [("data", (1, 3))], use_parser_friendly_name=True
    )
    assert set(params) == {"0_weight", "0_bias"}
    assert relay.structural_equal(relay.parse(mod.astext()), mod)


def test_quantized_convolutions_and_linear_layers() -> None:
    from torch.ao.quantization import DeQuantStub, QuantStub, convert, get_default_qconfig, prepare

    torch.backends.quantized.engine = "fbgemm"
    torch.manual_seed(3)
    model = nn.Sequential(
        QuantStub(), nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(72, 5), DeQuantStub(),
    ).eval()  # fmt: skip
    model.qconfig = get_default_qconfig("fbgemm")
    prepared = prepare(model)
    for _ in range(3):
        prepared(torch.randn(2, 3, 14, 14))
    quantized = convert(prepared)
    x = torch.randn(2, 3, 14, 14)
    graph = torch.jit.trace(quantized, x)
    mod, params = relay.frontend.from_pytorch(graph, [("x", tuple(x.shape))])
    assert "qnn.conv2d" in mod.astext(show_meta_data=False)
    (got,) = run_stock(mod, x.numpy(), params=params)
    want = quantized(x).numpy()
    step = float(quantized[5].scale)
    assert np.abs(got - want).max() <= 1.01 * step  # halves may round either way


_Q = torch.ops.quantized
QUANTIZED = {
    "mul_scalar": lambda q: _Q.mul_scalar(q, 2.5),
    "mul_scalar, negative": lambda q: _Q.mul_scalar(q, -3.0),
    "mul_scalar, zero": lambda q: _Q.mul_scalar(q, 0.0),
    "add_scalar": lambda q: _Q.add_scalar(q, 2.5),
    "add_scalar, large": lambda q: _Q.add_scalar(q, 20.0),
    "add_scalar, small": lambda q: _Q.add_scalar(q, -20.0),
    "hardswish": lambda q: _Q.hardswish(q, 0.04, 10),
    "leaky_relu": lambda q: _Q.leaky_relu(q, 0.1, False, 0.04, 10),
    "elu": lambda q: _Q.elu(q, 0.05, 30),
    "relu6": lambda q: _Q.relu6(q),
    "sigmoid": lambda q: _Q.sigmoid(q, 1 / 256, 0),
    "of the range": lambda q: torch.tanh(torch.sigmoid(F.hardsigmoid(q))),
    "joined": lambda q: torch.cat([q, q.relu()], 1),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_operators_on_quantized_tensors(name: str) -> None:
    """Values are those of PyTorch; halfway between two steps they may be one step away."""

    class Model(nn.Module):
        def forward(self, x):
            return QUANTIZED[name](
                torch.quantize_per_tensor(x, 0.05, 100, torch.quint8)
            ).dequantize()

    x = torch.arange(-120, 120).reshape(1, 2, 10, 12) / 15
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(Model(), x), [("x", x.shape)])
    distance = np.abs(run_stock(mod, x.numpy(), params=params)[0] - Model()(x).numpy())
    assert distance.max() <= 0.051
    assert np.mean(distance > 1e-5) < 0.04


@pytest.mark.filterwarnings("ignore")
def test_layers_that_quantize_at_run_time() -> None:
    from torch.ao.quantization import quantize_dynamic

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    model = quantize_dynamic(model, {nn.Linear}, torch.qint8)
    x = torch.randn(5, 8)
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(model, x), [("x", x.shape)])
    got = run_stock(mod, x.numpy(), params=params)[0]
    np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_models_in_training_mode_are_converted_for_inference() -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    graph = torch.jit.trace(model, torch.randn(5, 3), check_trace=False)
    with pytest.warns(UserWarning, match="training mode"):
        mod, params = relay.frontend.from_pytorch(graph, [("x", (5, 3))])
    x = torch.randn(5, 3)
    got = run_stock(mod, x.numpy(), params=params)[0]
    np.testing.assert_allclose(got, model.eval()(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_mistakes_are_named() -> None:
    graph = torch.jit.trace(lambda x: x[x[:, 0] > 0, [0, 1]], torch.ones(2, 3))
    with pytest.raises(UnsupportedOp, match=r"aten::index: .*mask.*torch\.where"):
        relay.frontend.from_pytorch(graph, [("x", (2, 3))])
    with pytest.raises(InvalidModel, match=r"torch\.jit\.trace"):
        relay.frontend.from_pytorch(nn.Linear(2, 2), [("x", (1, 2))])
    linear = torch.jit.trace(nn.Linear(2, 2), torch.randn(1, 2))
    with pytest.raises(InvalidModel, match="0 input_infos for a graph of 1"):
        relay.frontend.from_pytorch(linear, [])
    with pytest.raises(InvalidOption, match="input_infos"):
        relay.frontend.from_pytorch(linear, {"x": (1, 2)})
    pair = torch.jit.trace(lambda p: p[0] + p[1], ((torch.ones(2), torch.ones(2)),))
    with pytest.raises(InvalidOption, match="a shape for each item"):
        relay.frontend.from_pytorch(pair, [("p", (2,))])


@pytest.mark.filterwarnings("ignore")
def test_quantized_convolutions_over_one_axis() -> None:
    from torch.ao.nn.quantized import Conv1d

    layer = Conv1d(3, 4, 3, stride=2, padding=1)
    weight = torch.quantize_per_tensor(torch.randn(4, 3, 3), 0.02, 0, torch.qint8)
    layer.set_weight_bias(weight, torch.randn(4))
    layer.scale, layer.zero_point = 0.05, 90

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(torch.quantize_per_tensor(x, 0.03, 100, torch.quint8)).dequantize()

    x = torch.randn(2, 3, 11)
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(Model(), x), [("x", x.shape)])
    distance = np.abs(run_stock(mod, x.numpy(), params=params)[0] - Model()(x).numpy())
    assert distance.max() <= 0.0501
    assert np.mean(distance > 1e-5) < 0.05


def _raising(x: torch.Tensor) -> torch.Tensor:
    if bool(x.sum() > 0):
        raise ValueError("positive")
    else:
        raise ValueError("negative")
    return x


def test_a_model_that_raises_on_either_branch() -> None:
    with pytest.raises(InvalidModel, match="raises an exception"):
        relay.frontend.from_pytorch(torch.jit.script(_raising), [("x", (2,))])


_SORTED = torch.tensor([[1.0, 3, 3, 7], [2, 4, 6, 8]])


@pytest.mark.parametrize(
    "model, inputs",
    [
        (torch.searchsorted, [_SORTED, torch.tensor([[3.0, 0, 9], [4, 5, 8]])]),
        (lambda s, v: torch.searchsorted(s, v, side="right", out_int32=True), [_SORTED, _SORTED]),
        (lambda v, b: torch.bucketize(v, b, right=True), [_SORTED, _SORTED[0]]),
        (lambda x, i, s: x.scatter(0, i, s), [_SORTED, torch.empty(0, 4).long(), _SORTED]),
        (
            lambda x, g: nn.functional.grid_sample(x, g, align_corners=False),
            [torch.randn(1, 2, 3, 4, 5), torch.rand(1, 2, 3, 2, 3) * 2 - 1],
        ),
        (
            nn.functional.scaled_dot_product_attention,
            [torch.randn(3, 5, 4), torch.randn(3, 6, 4), torch.randn(2, 3, 6, 7)],
        ),
    ],
)
def test_operators(model: Any, inputs: list[torch.Tensor]) -> None:
    check(model, torch.jit.trace(model, tuple(inputs)), inputs)
