"""Attention as PyTorch's modules and users write it, from torch.export to a fused workload."""

from __future__ import annotations

import math

import pytest

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.normalize.normal_form import normalize

from ..attention.graphs import attentions, check

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

pytestmark = pytest.mark.filterwarnings("ignore")


def imported(module, *inputs):
    from convoy.pytorch.importer import to_relax, trace
    from convoy.pytorch.structure import flatten

    tensors, structure = flatten((inputs, {}))
    return to_relax(trace(module, structure, tensors).program)


def checked(module, *inputs, count=1, wanted=None):
    """Check a torch module; returns the attention workloads that are found in it."""
    torch.manual_seed(0)
    module = module.eval()
    if wanted is None:
        with torch.no_grad():
            wanted = module(*inputs).numpy()
    return check(imported(module, *inputs), [x.numpy() for x in inputs], wanted, count)


class Sdpa(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def qkv(queries=10, keys=12, value=16):
    generator = torch.Generator().manual_seed(0)
    sizes = ((queries, 16), (keys, 16), (keys, value))
    return [torch.randn(2, 4, *size, generator=generator) for size in sizes]


def test_rows_are_not_guarded_without_a_mask():
    mod = imported(Sdpa(scale=0.3), *qkv())
    names = [op_name(binding.value) for binding in bindings_of(mod["main"])]
    assert "relax.nn.softmax" in names and "relax.where" not in names
    (found,) = checked(Sdpa(scale=0.3), *qkv())
    assert not found.attention.zeros


def test_boolean_mask_with_a_row_that_hides_all():
    mask = torch.rand(2, 1, 10, 12, generator=torch.Generator().manual_seed(1)) > 0.5
    mask[0, 0, 3] = False
    (found,) = checked(Sdpa(), *qkv(), mask)
    assert found.attention.zeros and found.attention.bias.shape == (2, 1, 10, 12)


def test_float_mask_and_other_sizes_of_values():
    (found,) = checked(Sdpa(scale=0.3), *qkv(value=24), torch.randn(4, 1, 12))
    assert found.attention.bias.shape == (4, 1, 12)
    assert (found.c // found.groups, found.k // found.groups) == (16, 24)


def test_causal():
    (found,) = checked(Sdpa(is_causal=True), *qkv(12, 12))
    assert found.attention.causal and not found.attention.bias.shape


class Encoder(nn.Module):
    """A layer before it, so that the projection's result is no input of the network."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)

    def forward(self, x):
        return self.layer(x)


def test_encoder_layer_reads_the_projection_in_place():
    (found,) = checked(Encoder(), torch.randn(3, 9, 64))
    a = found.attention
    assert a.q.shape == a.k.shape == a.v.shape
    assert [a.q.offset, a.k.offset, a.v.offset] == [0, 64, 128]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scales_in_float32_are_the_kernels(dtype):
    """PyTorch scales 16-bit queries and keys in float32, which its own kernels do, too."""
    module = imported(Encoder().eval().to(dtype), torch.randn(3, 9, 64).to(dtype))
    (subgraph,) = attentions(normalize(module, dtype=str(dtype).removeprefix("torch.")))
    a = subgraph.require_workload().attention
    assert a.scale == 0.25 and a.q.shape == a.k.shape == a.v.shape == (27, 192)


class TokensFirst(nn.Module):
    """Batches first outside, tokens first inside, as PyTorch's module computes in training mode
    and torchvision's vision transformers are exported."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(self.norm(x).transpose(0, 1)).unflatten(-1, (3, c))
        parts = parts.unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
        q, k, v = (
            p.view(t, b * self.heads, -1).transpose(0, 1).view(b, self.heads, t, -1) for p in parts
        )
        y = F.scaled_dot_product_attention(q, k, v).permute(2, 0, 1, 3).reshape(b * t, c)
        return x + self.out(y).view(t, b, c).transpose(0, 1)


def test_rows_are_not_permuted_for_layers():
    (found,) = checked(TokensFirst(), torch.randn(3, 9, 32))
    a = found.attention
    assert a.q.shape == a.k.shape == a.v.shape == (3 * 9, 96), "the result of one layer"
    assert math.prod(a.o.shape) == 3 * 9 * 32 and a.o.strides[-1] == 32, "rows of all heads"
    module = normalize(imported(TokensFirst().eval(), torch.randn(3, 9, 32)))
    inside = {name for subgraph in attentions(module) for name in subgraph.ops}
    moves = [b.var.name for b in bindings_of(module["main"]) if "permute" in op_name(b.value)]
    assert moves and inside.issuperset(moves)


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x, memory):
        return self.attention(x, memory, memory, need_weights=False)[0]


def test_cross_attention():
    (found,) = checked(CrossAttention(), torch.randn(2, 7, 64), torch.randn(2, 15, 64))
    assert (found.h, found.w) == (7, 15)


class NeedsWeights(CrossAttention):
    def forward(self, x, memory):
        out, weights = self.attention(x, memory, memory, need_weights=True)
        return out.sum(-1) + weights.sum(-1)


def test_weights_that_are_needed_stay():
    checked(NeedsWeights(), torch.randn(2, 7, 64), torch.randn(2, 15, 64), count=0)


class Windows(nn.Module):
    """Shifted windows of a map, with a bias for each head and a mask for each window."""

    def __init__(self, side=8, window=4, width=32, heads=2):
        super().__init__()
        self.side, self.window, self.heads = side, window, heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        tokens = window * window
        self.table = nn.Parameter(torch.randn(50, heads))
        self.register_buffer("index", torch.randint(0, 50, (tokens * tokens,)))

    def forward(self, x):
        b, side, w, heads = x.shape[0], self.side, self.window, self.heads
        count, tokens, width = side // w, w * w, x.shape[-1]
        windows = x.view(b, count, w, count, w, width).permute(0, 1, 3, 2, 4, 5)
        windows = windows.reshape(b * count * count, tokens, width)
        parts = self.qkv(windows).reshape(-1, tokens, 3, heads, width // heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (width // heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.index].view(tokens, tokens, heads).permute(2, 0, 1)
        scores = scores + bias.unsqueeze(0)
        groups = torch.arange(count * count).view(-1, 1) * torch.arange(tokens) % 3
        mask = (groups.unsqueeze(1) != groups.unsqueeze(2)).float() * -100.0
        scores = scores.view(b, count * count, heads, tokens, tokens)
        scores = scores + mask.unsqueeze(1).unsqueeze(0)
        weights = scores.view(-1, heads, tokens, tokens).softmax(-1)
        out = (F.dropout(weights, 0.1, self.training) @ v).transpose(1, 2)
        return self.out(out.reshape(b * count * count, tokens, width))


def test_shifted_windows():
    (found,) = checked(Windows(), torch.randn(3, 8, 8, 32))
    a = found.attention
    assert a.outer == 3 and found.n == 3 * 4
    assert a.bias.shape == (1, 4, 2, 16, 16) and a.bias.strides[0] == 0


class Einsum(nn.Module):
    def forward(self, x):
        q, k, v = x.split(16, -1)
        weights = torch.einsum("bqd,bkd->bqk", q, k).softmax(-1)
        return torch.einsum("bqk,bkd->bqd", weights, v)


def test_einsum_of_one_head():
    (found,) = checked(Einsum(), torch.randn(2, 10, 48))
    assert found.attention.scale == 1.0


class Cosine(nn.Module):
    """Swin v2: keys and queries of length one, a scale for each head, a computed position bias.
    Tokens of zeros, as padding makes them, have keys of zeros: their length is the bound."""

    def __init__(self, width=32, heads=2, tokens=10):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width, bias=False)
        self.scale = nn.Parameter(torch.tensor([0.5, 1.5]).view(heads, 1, 1))
        self.bias = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, heads))
        self.register_buffer("places", torch.randn(tokens, tokens, 2))

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(x).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * self.scale.clamp(max=math.log(100.0)).exp()
        scores = scores + 2 * self.bias(self.places).permute(2, 0, 1).sigmoid()
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_cosine_attention_of_padded_windows(dtype):
    x = torch.randn(3, 10, 32)
    x[1, 6:] = 0
    torch.manual_seed(0)
    net = Cosine()
    with torch.no_grad():
        wanted = net(x).numpy()
    (found,) = checked(net.to(dtype), x.to(dtype), wanted=wanted)
    assert found.attention.bias.shape[-3:] == (2, 10, 10)


@pytest.mark.parametrize(("dim", "value"), [(36, 36), (12, 20), (16, 12)])
def test_heads_are_padded_to_what_kernels_load(dim, value):
    q, k, v = qkv(value=value)
    q, k = (F.pad(x, (0, dim - 16)) + 0.1 if dim > 16 else x[..., :dim] for x in (q, k))
    (found,) = checked(Sdpa(), q, k, v, torch.randn(10, 12))
    sizes = found.c // found.groups, found.k // found.groups
    assert sizes == tuple(-(-size // 8) * 8 for size in (dim, value))


class Projected(nn.Module):
    """Heads of 12 elements, made by one layer or three, and a layer behind them. ``also`` returns
    what the first layer makes as well."""

    def __init__(self, layers=1, also=False):
        super().__init__()
        self.made = nn.ModuleList(nn.Linear(32, 96 // layers * 3 // 2) for _ in range(layers))
        self.behind, self.also = nn.Linear(48, 24), also

    def forward(self, x):
        made = [layer(x) for layer in self.made]
        if len(made) == 1:
            parts = made[0].reshape(2, 10, 3, 4, 12).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            parts = [one.view(2, 10, 4, 12).transpose(1, 2) for one in made]
        y = F.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(2, 10, 48)
        return (self.behind(y), made[0]) if self.also else self.behind(y)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_weights_of_heads_are_padded(layers, dtype):
    torch.manual_seed(0)
    net, x = Projected(layers), torch.randn(2, 10, 32)
    with torch.no_grad():
        wanted = net(x).numpy()
    net, x = net.to(dtype), x.to(dtype)
    (found,) = checked(net, x, wanted=wanted)
    assert (found.c // found.groups, found.k // found.groups) == (16, 16)
    names = [op_name(b.value) for b in bindings_of(normalize(imported(net, x))["main"])]
    assert "relax.nn.pad" not in names


def test_heads_that_others_read_are_padded_beside_them():
    net, x = Projected(also=True).eval(), torch.randn(2, 10, 32)
    normal = normalize(imported(net, x))
    names = [op_name(binding.value) for binding in bindings_of(normal["main"])]
    assert names.count("relax.nn.pad") == 3 and names.count("relax.matmul") == 4


class Positions(nn.Module):
    """Scores with a term of the query for each row of keys and one for each column, as MViT and
    the image encoder of SAM have them."""

    def forward(self, q, k, v, rows, columns):
        scores = q @ k.transpose(-2, -1) * 0.25
        scores = scores.view(2, 4, 3, 4, 2, 5)
        by_row = torch.einsum("bnyxc,yrc->bnyxr", q.view(2, 4, 3, 4, 16), rows)
        by_column = torch.einsum("bnyxc,xsc->bnyxs", q.view(2, 4, 3, 4, 16), columns)
        scores = scores + by_row[..., None] + by_column[..., None, :]
        return scores.reshape(2, 4, 12, 10).softmax(-1) @ v


def test_terms_for_rows_and_columns_of_an_image():
    rows, columns = torch.randn(3, 2, 16), torch.randn(4, 5, 16)
    (found,) = checked(Positions(), *qkv(12, 10), rows, columns)
    assert found.attention.bias.shape == (2, 4, 12, 10)


class Layers(nn.Module):
    """Queries, keys and values by layers of their own."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32, bias=i != 1) for i in range(3))

    def forward(self, x):
        q, k, v = (layer(x).view(2, 10, 4, 8).transpose(1, 2) for layer in self.layers)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 10, 32)


def test_layers_of_one_tensor_are_one_product_and_its_views():
    (found,) = checked(Layers(), torch.randn(2, 10, 32))
    views = found.attention.q, found.attention.k, found.attention.v
    assert [(view.shape, view.offset) for view in views] == [((20, 96), 32 * i) for i in range(3)]
