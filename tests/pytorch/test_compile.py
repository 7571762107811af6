"""convoy.compile: calls, results, dtypes, threads and errors of compiled PyTorch modules."""

from __future__ import annotations

import dataclasses
import functools
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import convoy
from convoy import errors
from convoy.pytorch.importer import precision_of, to_relax, trace
from convoy.pytorch.module import between_devices, device_of
from convoy.pytorch.structure import flatten

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


@dataclasses.dataclass
class Detections:
    boxes: Any
    scores: Any
    labels: tuple[str, ...] = ("none",)


class Nested(nn.Module):
    """Takes and gives tensors in containers, by position and by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any, scale: float = 2.0, *, masks: Any = None) -> Any:
        y = torch.relu(self.norm(self.conv(x))) * scale
        if masks is not None:
            y = y * masks["first"][0]
        boxes = self.head(y.mean((2, 3)))
        return {"features": [y, None], "found": Detections(boxes, boxes.sigmoid())}


def randomized(net: Any) -> Any:
    """The module in evaluation mode with statistics that are not those of initialization."""
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-1, 1)
            layer.running_var.uniform_(0.5, 2)
    return net.eval()


@pytest.fixture(scope="module")
def nested() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    net = randomized(Nested())
    return net, convoy.compile(net, torch.randn(2, 3, 9, 9)), torch.randn(2, 3, 9, 9)


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    assert (got.double() - want.double()).abs().max() <= tolerance * want.double().abs().max()


def test_results_have_the_structure_of_the_module(nested: Any) -> None:
    net, compiled, x = nested
    with torch.no_grad():
        want = net(x)
    for got in (compiled(x), compiled(x=x), compiled(x, 2.0), compiled(x, scale=2.0, masks=None)):
        assert got["features"][1] is None and got["found"].labels == ("none",)
        close(got["features"][0], want["features"][0])
        close(got["found"].boxes, want["found"].boxes)
        close(got["found"].scores, want["found"].scores)


def test_nested_keyword_inputs() -> None:
    torch.manual_seed(1)
    net = randomized(Nested())
    x, masks = torch.randn(1, 3, 8, 8), {"first": (torch.rand(4, 4),)}
    compiled = convoy.compile(net, (x,), {"masks": masks})
    other = {"first": (torch.rand(4, 4),)}
    with torch.no_grad():
        want = net(x, masks=other)
    close(compiled(x, masks=other)["found"].boxes, want["found"].boxes)
    with pytest.raises(errors.InvalidOption, match="compile another one"):
        compiled(x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_dtype_is_the_modules(dtype: str) -> None:
    torch.manual_seed(2)
    kind = getattr(torch, dtype)
    net = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(2), nn.Linear(64, 5, bias=False), nn.GELU(), nn.Linear(5, 3),
    ).eval()  # fmt: skip
    x = torch.randn(2, 4, 4, 4)
    with torch.no_grad():
        want = net(x)
    compiled = convoy.compile(net.to(kind), x.to(kind))
    got = compiled(x.to(kind))
    assert compiled.precision == dtype and got.dtype == kind
    close(got.float(), want, 2e-2 if dtype == "bfloat16" else 4e-3)


class OnGpu(NamedTuple):
    """What is asked of a tensor on a GPU."""

    dtype: torch.dtype
    is_cuda: bool = True

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point


def test_float32_on_a_gpu_is_rounded_where_pytorch_rounds_it() -> None:
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    weights: Any = [OnGpu(torch.float32)]
    assert precision_of(weights) == "tf32_conv"
    assert precision_of([torch.ones(1)]) == "float32"
    assert precision_of([OnGpu(torch.float16)], weights) == "float16"  # type: ignore[list-item]
    try:
        products.allow_tf32 = True
        assert precision_of(weights) == "tf32"
        convolutions.allow_tf32 = False
        assert precision_of(weights) == "float32"
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def test_views_and_other_strides(nested: Any) -> None:
    """Kernels read compact, aligned memory; other tensors are copied first."""
    net, compiled, _ = nested
    x = torch.randn(3, 3, 9, 9)
    with torch.no_grad():
        for view in (x[1:], x[:2].to(memory_format=torch.channels_last), x[:2].flip(3)):
            close(compiled(view)["features"][0], net(view)["features"][0])


def test_host_tensors_are_not_copied() -> None:
    """The compiled function reads the caller's memory; its result is a tensor of its own."""
    compiled = convoy.compile(lambda x: torch.relu(x) + 1, torch.zeros(4, 16))
    x = torch.ones(4, 16)
    first = compiled(x)
    x.fill_(2.0)
    second = compiled(x)
    assert first.eq(2).all() and second.eq(3).all() and first.data_ptr() != second.data_ptr()


def test_each_result_has_memory_of_its_own() -> None:
    """A caller may write to inputs and results between calls."""

    def function(x: Any) -> tuple[Any, ...]:
        y = x * 2
        return x.clone(), y, y + 0, torch.arange(3.0) + 1

    compiled = convoy.compile(function, torch.zeros(4))
    for fill in (1.0, 3.0):
        x = torch.full((4,), fill)
        results, wanted = compiled(x), function(x)
        assert len({one.data_ptr() for one in (x, *results)}) == 5
        for got, want in zip(results, wanted, strict=True):
            assert got.equal(want)
            got.zero_()


def test_many_threads(nested: Any) -> None:
    net, compiled, _ = nested
    inputs = [torch.randn(2, 3, 9, 9) for _ in range(4)]
    with torch.no_grad():
        want = [net(x)["found"].boxes for x in inputs]
    wrong: list[Exception | AssertionError] = []

    def work(i: int) -> None:
        try:
            for _ in range(20):
                close(compiled(inputs[i])["found"].boxes, want[i])
        except (Exception, AssertionError) as err:
            wrong.append(err)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_parameters_are_updated() -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.LayerNorm([4, 5, 5])).eval()
    compiled, x = convoy.compile(net, torch.randn(1, 3, 5, 5)), torch.randn(1, 3, 5, 5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter))
        compiled.update_parameters()
        close(compiled(x), net(x))


def test_an_exported_module_needs_no_torch(nested: Any, tmp_path: Path) -> None:
    net, compiled, x = nested
    compiled.export(tmp_path / "net.so")
    features, boxes, _ = convoy.load(tmp_path / "net.so").session()(x.numpy())
    with torch.no_grad():
        want = net(x)
    np.testing.assert_allclose(boxes, want["found"].boxes.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(features, want["features"][0].numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(errors.InvalidOption, match="CPU"):
        compiled.report(tmp_path / "report.html")


def test_wrong_calls(nested: Any) -> None:
    _, compiled, x = nested
    cases = [
        ((x.double(),), {}, "float64"),
        ((x[:1],), {}, r"\(1, 3, 9, 9\).*\(2, 3, 9, 9\)"),
        ((x, 3.0), {}, "compile another one"),
        ((x.clone().requires_grad_(),), {}, "no_grad"),
        ((x.numpy(),), {}, "ndarray"),
        ((), {}, r"missing a required argument.*the example inputs, \("),
        ((x,), {"colour": x}, "unexpected keyword argument 'colour'"),
    ]
    for args, kwargs, message in cases:
        with pytest.raises(errors.InvalidOption, match=message):
            compiled(*args, **kwargs)


def test_arguments_that_a_decorator_gives() -> None:
    def scaled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("scale") is None:
                kwargs["scale"] = 3.0
            return function(*args, **kwargs)

        return wrapper

    @scaled
    def function(x: Any, scale: Any = None, shift: Any = 0.5) -> Any:
        return x * scale + shift

    x = torch.randn(2, 3)
    compiled = convoy.compile(function, x, cache=False)
    for got in (compiled(x), compiled(x=x), compiled(x, shift=0.5), compiled(x, scale=None)):
        close(got, x * 3 + 0.5)
    with pytest.raises(errors.InvalidOption, match="compile another one"):
        compiled(x, shift=1.0)


def test_as_many_arguments_as_tensors() -> None:
    """A pair and an argument that is no tensor are two arguments with two tensors."""
    pair = (torch.randn(2, 3), torch.randn(2, 3))
    for other in (None, 2.0, {}):
        compiled = convoy.compile(lambda pair, other: pair[0] - pair[1], (pair, other), cache=False)
        close(compiled(pair, other), pair[0] - pair[1])


class Kept:
    """Tensors among the attributes of an object."""

    def __init__(self, keys: Any) -> None:
        self.layers, self.dtype = [{"keys": keys}], keys.dtype


def test_objects_among_the_results() -> None:
    x = torch.randn(2, 3)
    got = convoy.compile(lambda x: (x + 1, Kept(x * 2)), x, cache=False)(x)[1]
    assert isinstance(got, Kept) and got.dtype == torch.float32
    close(got.layers[0]["keys"], x * 2)


def test_views_of_what_a_decomposition_lays_out_otherwise() -> None:
    def function(x: Any) -> Any:
        y = nn.functional.scaled_dot_product_attention(x, x * 2, x * 3)
        return y.transpose(1, 2).reshape(10, 28)

    x = torch.randn(2, 4, 5, 7)
    close(convoy.compile(function, x, cache=False)(x), function(x), 1e-4)


def test_what_cannot_be_compiled() -> None:
    x = torch.randn(1, 3, 6, 6)
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (nn.BatchNorm2d(3).train(), x, errors.UnsupportedOp, r"running_mean.*eval\(\)"),
        (nn.Dropout(0.5).train(), x, errors.UnsupportedOp, r"random numbers.*eval\(\)"),
        (lambda v: v if v.sum() > 0 else -v, x, errors.UnsupportedOp, "torch.compile"),
        (lambda v: torch.linalg.qr(v)[0], x, errors.UnsupportedOp, "linalg_qr"),
        (nn.Conv2d(3, 4, 1).double(), x.double(), errors.UnsupportedDtype, "float64"),
        (nn.Conv2d(3, 4, 1).half(), (x.half(), x), errors.InvalidOption, "example inputs"),
    ]  # fmt: skip
    for module, example, error, message in cases:
        with pytest.raises(error, match=message):
            convoy.compile(module, example)
    with pytest.raises(errors.InvalidOption, match=r"torch\.nn\.Module"):
        convoy.compile("resnet18", x)


def test_several_batch_sizes(tmp_path: Path) -> None:
    torch.manual_seed(4)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 700)).eval()
    compiled = convoy.compile(net, torch.randn(2, 3, 8, 8), batch=[6, 1, 3])
    with torch.no_grad():
        for rows in range(1, 7):
            x = torch.randn(rows, 3, 8, 8)
            close(compiled(x), net(x))
    for wrong, message in [
        (torch.randn(7, 3, 8, 8), r"batch of 7; expected 1 to 6.*batch=\[1, 3, 6, 7\]"),
        (torch.randn(0, 3, 8, 8), "batch of 0"),
        (torch.randn(3, 3, 8, 9), r"\(3, 3, 8, 9\).*\(3, 3, 8, 8\)"),
    ]:
        with pytest.raises(errors.InvalidOption, match=message):
            compiled(wrong)
    compiled.export(tmp_path / "net.so")
    weights = 4 * sum(p.numel() for p in net.parameters())
    assert (tmp_path / "net.so").stat().st_size < 2 * weights  # they are there once
    sessions = convoy.load(tmp_path / "net.so").sessions()
    assert [s.meta.inputs[0].shape[0] for s in sessions] == [1, 3, 6]
    for session in sessions:
        x = torch.randn(session.meta.inputs[0].shape)
        with torch.no_grad():
            np.testing.assert_allclose(session(x.numpy())[0], net(x).numpy(), atol=1e-5)


def test_inputs_that_count_as_batched_are_named() -> None:
    with pytest.raises(errors.InvalidOption, match="inputs 0, 1: their first dimension"):
        convoy.compile(torch.matmul, (torch.randn(3, 3), torch.randn(3, 4)), batch=[1, 4])


def test_a_result_that_is_no_batch_is_not_padded() -> None:
    compiled = convoy.compile(lambda x: (x + 1, x.mean()), torch.ones(2, 8), batch=[2, 4])
    assert compiled(torch.ones(4, 8))[1] == 1
    with pytest.raises(errors.InvalidOption, match=r"not a batch.*2 or 4"):
        compiled(torch.ones(3, 8))
    for batch in ([0, 4], [], 1.5, "8", True):
        with pytest.raises(errors.InvalidOption, match="positive integers"):
            convoy.compile(torch.relu, torch.ones(2, 8), batch=batch)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x - x.mean(0),
        lambda x: x.flip(0),
        lambda x: x.flip(0).cumsum(0).flip(0),
        lambda x: x.softmax(0),
        lambda x: nn.functional.batch_norm(x, None, None, training=True),
        lambda x: x.t() @ x,  # as many rows as the batch has
        lambda x: x.sort(0)[0],
    ],
)
def test_rows_that_mix_are_not_padded(mixed: Any) -> None:
    x = 10 * torch.randn(4, 4)
    compiled = convoy.compile(mixed, x, batch=[4])
    close(compiled(x), mixed(x), 1e-4)
    for few in (x[:3], torch.zeros(3, 4)):
        with pytest.raises(errors.InvalidOption, match="mixes the rows"):
            compiled(few)


def test_rows_that_see_only_those_before_are_padded() -> None:
    x = torch.randn(3, 4)
    compiled = convoy.compile(lambda x: x.cumsum(0).log(), x, batch=[4])
    torch.testing.assert_close(compiled(x), x.cumsum(0).log(), equal_nan=True)


def test_an_exported_program_gets_the_sizes_of_the_examples() -> None:
    net = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(net, (torch.randn(4, 8),), dynamic_shapes=({0: batch},))
    x = torch.randn(3, 8)
    with torch.no_grad():
        close(convoy.compile(program, x)(x), net(x))


def test_an_exported_program_is_called_as_it_was_exported() -> None:
    class Masked(nn.Module):
        def forward(self, x: Any, *, more: Any, scale: float = 1.0, mask: Any = None) -> Any:
            return x * scale * mask + more["a"]

    x = torch.randn(2, 3)
    named = {"mask": x > 0, "more": {"a": x[0]}}
    compiled = convoy.compile(torch.export.export(Masked(), (x,), named), x, named)
    close(compiled(x, **named), Masked()(x, **named))


def test_an_exported_program_of_other_sizes() -> None:
    program = torch.export.export(nn.Linear(8, 4).eval(), (torch.randn(4, 8),))
    with pytest.raises(errors.InvalidOption, match=r"exported for.*dynamic_shapes"):
        convoy.compile(program, torch.randn(3, 8))


def test_a_named_tuple_is_one_argument() -> None:
    class Pair(NamedTuple):
        left: Any
        right: Any

    example = Pair(torch.randn(2, 3), torch.randn(2, 3))
    compiled = convoy.compile(lambda both: both.left - both.right, example, cache=False)
    close(compiled(example), example.left - example.right)


def test_tensors_that_are_not_dense() -> None:
    ragged = torch.nested.nested_tensor([torch.randn(2), torch.randn(3)])
    for given, remedy in ((ragged, "padded"), (torch.eye(3).to_sparse(), "to_dense")):
        with pytest.raises(errors.InvalidOption, match=remedy):
            convoy.compile(torch.relu, given)
    net = nn.Linear(3, 3)
    net.register_buffer("edges", torch.eye(3).to_sparse())
    with pytest.raises(errors.InvalidOption, match=r"sparse_coo \(edges\).*to_dense"):
        convoy.compile(net, torch.eye(3))


def test_a_call_that_raises_what_the_module_catches() -> None:
    def function(x: Any) -> Any:
        try:
            return x.view(3, 5)
        except RuntimeError:
            return x + 1

    assert convoy.compile(function, torch.zeros(4))(torch.zeros(4)).eq(1).all()


def test_weights_of_inference_mode() -> None:
    with torch.inference_mode():
        net, x = nn.Linear(4, 4), torch.randn(2, 4)
        want = net(x)
    compiled = convoy.compile(net, x)
    compiled.update_parameters()
    close(compiled(x), want)


def test_distributions_are_not_validated() -> None:
    from torch.distributions import Distribution, Normal

    x, checked = torch.randn(3, 4), Distribution._validate_args
    Distribution.set_default_validate_args(True)
    try:
        compiled = convoy.compile(lambda x: Normal(x, x.exp()).log_prob(x * 2), x)
        close(compiled(x), Normal(x, x.exp()).log_prob(x * 2))
        assert Distribution._validate_args
    finally:
        Distribution.set_default_validate_args(checked)


def test_extremes_keep_nan() -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x), x.amax(1), x.amin((0, 2), keepdim=True), x.amax(), x.clamp(-1, 1)

    x = torch.randn(3, 4, 5)
    x[1, 2, 3] = torch.nan
    for got, want in zip(convoy.compile(Net(), (x,))(x), Net()(x), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("kind", ["cudnn", "flash", "efficient", ""])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_attention_of_a_gpu(kind: str, dtype: Any) -> None:
    """Programs have PyTorch's attention kernels in place of the operator; both are found, and so
    is the linear layer behind, whose input is not contiguous."""
    aten = torch.ops.aten

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            b, n, c = x.shape
            q, k, v = self.qkv(x).reshape(b, n, 3, 4, 16).permute(2, 0, 3, 1, 4)
            if kind == "cudnn":
                y = aten._scaled_dot_product_cudnn_attention(q, k, v, None, False)[0]
            elif kind == "flash":
                y = aten._scaled_dot_product_flash_attention(q, k, v)[0]
            elif kind == "efficient":
                y = aten._scaled_dot_product_efficient_attention(q, k, v, None, False)[0]
            else:
                y = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).reshape(b, n, c))

    net, x = Net().eval().to(dtype), torch.randn(2, 17, 64, dtype=dtype)
    tensors, structure = flatten(((x,), {}))
    module = to_relax(trace(net, structure, tensors).program)
    plan = convoy.place(module, precision="float16", measure=False).plan
    assert plan.backends().pop("attention") == 1
    assert len(plan.choices) == 3


def test_max_pooling_of_pictures_without_options() -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            pool = nn.functional.max_pool2d
            return pool(x, 2), pool(x, 3, ceil_mode=True), pool(x[0], (2, 3), padding=(0, 1))

    x = torch.randn(2, 3, 11, 13)
    for got, want in zip(convoy.compile(Net(), (x,))(x), Net()(x), strict=True):
        torch.testing.assert_close(got, want)


def test_constants_of_the_host_among_tensors_of_a_gpu() -> None:
    """They are traced where they are, run on the GPU, and results come back where PyTorch has
    them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def function(x: Any, sizes: Any) -> Any:
        areas = sizes.clamp(0, 1) * torch.arange(2)
        return x.mean((2, 3)) + areas.sum().to(x.device), areas

    with FakeTensorMode():
        x, sizes = torch.empty(1, 3, 8, 8, device="cuda"), torch.empty(3, 2)
    tensors, structure = flatten(((x, sizes), {}))
    assert device_of(function, tensors, mixed=True).type == "cuda"
    with pytest.raises(errors.InvalidOption, match="on one device"):
        device_of(function, tensors)
    assert [d.type for d in trace(function, structure, tensors).devices] == ["cuda", "cpu"]


def test_tensors_move_to_the_device_and_back() -> None:
    seen: list[str] = []

    def run(tensors: Any) -> Any:
        seen.extend(tensor.device.type for tensor in tensors)
        return tensors

    meta, cpu = torch.device("meta"), torch.device("cpu")
    moved = between_devices(run, meta, [meta, meta])
    results = moved([torch.ones(2), torch.ones(2, device=meta)])
    assert seen == ["meta", "meta"] == [result.device.type for result in results]
    (result,) = between_devices(run, cpu, [meta])([torch.ones(2)])
    assert result.device == meta


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_in_float32_of_a_16_bit_network_stay_so(dtype: Any) -> None:
    """Linear attention with sums that 16 bits cannot hold, and a bound that float16 rounds to 0."""

    class LinearAttention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            q, k, v = (part.relu().float() * 300 for part in self.qkv(x).chunk(3, -1))
            ones = torch.ones_like(v[..., :1])
            result = q @ (k.transpose(1, 2) @ torch.cat([v, ones], -1))
            result = result[..., :-1] / (result[..., -1:] + 1e-15)
            return self.out((result / 300).to(x.dtype))

    torch.manual_seed(0)
    net, x = LinearAttention().eval().to(dtype), torch.randn(2, 64, 8).to(dtype)
    with torch.no_grad():
        want = net(x).float()
    tolerance = 4e-3 if dtype == torch.float16 else 3e-2
    assert (convoy.compile(net, x)(x).float() - want).norm() <= tolerance * want.norm()


def test_weights_within_a_larger_buffer() -> None:
    """As those of a checkpoint that is mapped into memory: aligned to nothing but their size."""
    net = torch.nn.Linear(5, 7).bfloat16()
    flat = torch.cat([torch.zeros(3).bfloat16(), net.weight.detach().reshape(-1)])
    net.weight = torch.nn.Parameter(flat[3:].view(7, 5))
    x = torch.randn(2, 5).bfloat16()
    with torch.no_grad():
        want = net(x).float()
    assert (convoy.compile(net, x)(x).float() - want).norm() <= 1e-2 * want.norm()


def test_weights_that_a_16_bit_module_computes_are_rounded_once() -> None:
    class Standardized(nn.Conv2d):
        def forward(self, x: Any) -> Any:
            flat = self.weight.reshape(1, self.out_channels, -1)
            flat = nn.functional.batch_norm(flat, None, None, training=True, momentum=0.0)
            return nn.functional.conv2d(x, flat.reshape_as(self.weight))

    torch.manual_seed(0)
    module, x = Standardized(96, 8, 3).half(), torch.zeros(1, 96, 3, 3, dtype=torch.float16)
    wide = module.weight.double().reshape(8, -1)
    scale = (wide.var(1, correction=0, keepdim=True) + 1e-5).rsqrt()
    weights = ((wide - wide.mean(1, keepdim=True)) * scale).reshape_as(module.weight)
    run = convoy.compile(module, (x,))
    for channel, row, column in ((0, 0, 0), (50, 1, 2), (95, 2, 2)):
        x.zero_()[0, channel, row, column] = 1
        wanted = weights[:, channel, row, column].half()
        assert torch.equal(run(x).flatten(), wanted)
