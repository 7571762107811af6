"""Stems are found from the image as the network is given it to the end of the pool, and no further
than another reader or a result allows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tvm
from tests.helpers.illegal_sites import illegal_sites
from tvm import relax

from convoy.backends.registry import get
from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.ir.device import Device
from convoy.ir.stem import Stem
from convoy.lower.executable import lower
from convoy.normalize.forms import normal_forms
from convoy.normalize.normal_form import normalize
from convoy.partition import patterns
from convoy.partition.partition import partition
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

from ..attention.graphs import stand_in
from ..graph.nets import Net

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore")

POOL = Stem(3, False, "float32", (3, 3), (2, 2), (1, 1, 0, 0))
BACKENDS = [get(name) for name in ("cutlass", "hopper", "tvm")]


def imported(module, *inputs):
    from convoy.pytorch.importer import to_relax, trace
    from convoy.pytorch.structure import flatten

    tensors, structure = flatten((inputs, {}))
    return to_relax(trace(module.eval(), structure, tensors).program)


def image(channels=3, dtype=torch.float32, size=32):
    return torch.randn(2, channels, size, size).to(dtype)


def network(*behind, channels=3, dtype=torch.float32):
    return nn.Sequential(nn.Conv2d(channels, 16, 3, 2, 1), *behind).to(dtype)


def stems(module):
    """The stems of a module in normal form, of which none is illegal."""
    assert not illegal_sites(module)
    return [s for s in find_subgraphs(module) if s.require_workload().op == "stem"]


def found(module, *inputs, precision="float16"):
    """Of each stem its own fields, the name of its epilogue, and the operations that it covers."""
    module = normalize(imported(module, *inputs), dtype=precision)
    kinds = {
        b.var.name: op_name(b.value).removeprefix("relax.") for b in bindings_of(module["main"])
    }
    return [
        (
            s.workload.stem,
            s.workload.epilogue.name,
            [kinds[name].removeprefix("nn.") for name in s.ops],
        )
        for s in stems(module)
    ]


FRONT = ["astype", "permute_dims", "pad"]
MIDDLE = ["conv2d", "add", "relu"]


def test_to_the_end_of_the_pool_and_of_the_epilogue():
    net = network(nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    assert found(net, image()) == [
        (POOL, "bias_relu", [*FRONT, *MIDDLE, "max_pool2d"]),
        (Stem(3), "bias_relu", [*FRONT, *MIDDLE]),
    ]


def test_without_a_pool_in_bfloat16():
    ((stem, epilogue, ops),) = found(network(nn.SiLU()), image(), precision="bfloat16")
    assert (stem, epilogue, ops) == (Stem(3), "bias_silu", [*FRONT, "conv2d", "add", "silu"])


def test_a_half_image_is_not_cast():
    net = network(nn.ReLU(), nn.MaxPool2d(3, 2, 1), dtype=torch.half)
    (pooled, *_), (plain, _, ops) = found(net, image(dtype=torch.half))
    assert pooled == dataclasses.replace(POOL, dtype="float16") and plain == Stem(
        3, False, "float16"
    )
    assert ops == [*FRONT[1:], *MIDDLE]


def test_a_network_in_float32_has_none():
    assert not found(network(nn.ReLU()), image(), precision="float32")


class ChannelsLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = network(nn.ReLU())

    def forward(self, x):
        return self.layers(x.permute(0, 3, 1, 2))


def test_images_with_channels_last_are_not_permuted():
    ((stem, _, ops),) = found(ChannelsLast(), image().permute(0, 2, 3, 1).contiguous())
    assert stem == Stem(3, True) and sorted(ops) == sorted(["astype", "pad", *MIDDLE])


@pytest.mark.parametrize(
    ("pool", "window", "stride", "padding"),
    [
        (nn.MaxPool2d(2), (2, 2), (2, 2), (0, 0, 0, 0)),
        (nn.MaxPool2d(3, 2, ceil_mode=True), (3, 3), (2, 2), (0, 0, 1, 1)),
        (nn.MaxPool2d((3, 2), (1, 2), (1, 0)), (3, 2), (1, 2), (1, 0, 1, 0)),
        (nn.MaxPool2d(2, 5, ceil_mode=True), (2, 2), (5, 5), (0, 0, 1, 1)),
    ],
)
def test_pools(pool, window, stride, padding):
    (pooled, _, ops), _ = found(network(nn.ReLU(), pool), image())
    assert pooled == Stem(3, False, "float32", window, stride, padding)
    assert ops[-1] == "max_pool2d"


@pytest.mark.parametrize(
    "behind",
    [
        (nn.MaxPool2d(3, 2, 1, dilation=2),),
        (nn.AvgPool2d(2),),
        (nn.Sigmoid(), nn.Tanh(), nn.MaxPool2d(2)),
    ],
)
def test_what_is_no_pool_of_the_result(behind):
    (only,) = found(network(*behind), image())
    assert not only[0].pools and only[0].channels == 3


@pytest.mark.parametrize(("channels", "front"), [(2, FRONT), (4, FRONT[:2])])
def test_other_numbers_of_channels(channels, front):
    ((stem, _, ops),) = found(network(nn.ReLU(), channels=channels), image(channels))
    assert stem == Stem(channels) and ops == [*front, *MIDDLE]


def test_more_than_four_channels_are_no_image():
    assert not found(network(nn.ReLU(), nn.MaxPool2d(2), channels=5), image(5))


def test_one_channel_is_read_as_it_is():
    """The permutation of one channel is a reshape."""
    net = network(nn.ReLU(), channels=1)
    ((stem, _, ops),) = found(net, image(1))
    assert stem == Stem(1) and ops == ["astype", "reshape", "pad", *MIDDLE]
    ((stem, _, _),) = found(net.half(), image(1, torch.half))
    assert stem == Stem(1, False, "float16")


class Bytes(nn.Module):
    """An image of bytes, or one that is scaled in a way that weights cannot take over."""

    def __init__(self):
        super().__init__()
        self.layers = network(nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.layers(torch.exp(x.float()))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_what_an_elementwise_kernel_makes_is_not_read_before_it(dtype):
    """The kernel that makes it also casts, permutes and pads."""
    ((stem, _, ops),) = found(Bytes(), image().abs().to(dtype))
    assert ops == [*MIDDLE, "max_pool2d"]
    assert stem == Stem(4, True, "float16", (2, 2), (2, 2))


class Ends(nn.Module):
    """A convolution, or two of one image, with what else is returned."""

    def __init__(self, count=1, returned="nothing"):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, 16, size, 2, size // 2) for size in (3, 5)[:count])
        self.returned = returned

    def forward(self, x):
        sums = [layer(x) for layer in self.layers]
        y = torch.relu(sums[0])
        also = {"nothing": (), "image": (x,), "sums": (sums[0],), "before": (y,)}[self.returned]
        return (nn.functional.max_pool2d(y, 2), *sums[1:], *also)


def test_an_image_that_two_convolutions_read_is_cast_once():
    for stem, _, ops in found(Ends(2), image()):
        assert (stem.channels_last, stem.dtype) == (True, "float16")
        assert not {"astype", "permute_dims"} & set(ops)


def test_results_are_not_covered():
    whole, _ = found(Ends(returned="image"), image())
    assert whole[0].pools and whole[2][:3] == FRONT
    # Sums and their relu are two results of one kernel, and the stem has one.
    assert not found(Ends(returned="sums"), image())
    (only,) = found(Ends(returned="before"), image())
    assert only[1] == "bias_relu" and not only[0].pools


def test_inner_convolutions_are_none():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3))
    assert [stem for stem, *_ in found(net, image())] == [Stem(3)]


def test_a_residual_stays_outside():
    net = Net((1, 3, 8, 8))
    sums = net.add(net.conv(net.x, 8, 3), net.conv(net.x, 8, 1))
    module = normalize(net.finish(net.max_pool(net.relu(sums))), dtype="float16")
    assert not any(s.workload.epilogue.residual for s in stems(module))


@pytest.mark.parametrize(
    ("window", "stride", "padding"),
    [(2, 2, (0, 0, 2, 2)), (2, 1, (2, 2, 0, 0)), (1, 1, (1, 1, 1, 1))],
)
def test_windows_in_the_padding_alone_are_left_to_tvm(window, stride, padding):
    net = Net((1, 3, 8, 8))
    pool = net.max_pool(net.relu(net.conv(net.x, 8, 3)), window, stride, padding)
    (only,) = stems(normalize(net.finish(pool), dtype="float16"))
    assert not only.workload.stem.pools


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_computes_the_same(dtype):
    """With the reference in the place of each stem."""
    net = network(nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True))
    x = image(size=13)
    module = normalize(imported(net, x), dtype=dtype)
    wanted = net(x).detach().numpy()
    for number, subgraph in enumerate(stems(module)):
        name = f"stem_of_a_test_{dtype}_{number}"
        tvm.register_global_func(name, stand_in(subgraph.require_workload()))
        fused = rewrite(module, {subgraph.id: name})
        left = {op_name(b.value) for b in bindings_of(fused["main"])}
        assert not left & {"relax.nn.conv2d", "relax.nn.pad"}
        machine = relax.VirtualMachine(lower(fused, "llvm"), tvm.cpu())
        got = machine["main"](tvm.runtime.tensor(x.numpy()))[0].numpy()
        np.testing.assert_allclose(got, wanted, atol=0.03)


def test_only_the_padded_form_is_for_the_kernel():
    module = imported(network(nn.ReLU(), nn.MaxPool2d(3, 2, 1)), image())
    forms = list(normal_forms(module, None, "float16"))
    taken = [
        [s for s in partition(form, BACKENDS).subgraphs if s.require_workload().op == "stem"]
        for form in forms
    ]
    assert len(forms) == 3 and [len(subgraphs) for subgraphs in taken] == [2, 0, 0]
    assert all(s.accepted_by("hopper") and not s.accepted_by("cutlass") for s in taken[0])


def test_where_no_backend_takes_them_nothing_changes(monkeypatch):
    module = normalize(
        imported(network(nn.ReLU(), nn.MaxPool2d(3, 2, 1)), image()), dtype="float16"
    )
    other = dataclasses.replace(Device(), arch=80)
    with_stems = partition(module, BACKENDS, other)
    assert len(stems(module)) == 2
    known = [p for p in patterns.registered() if p.name != "stem"]
    monkeypatch.setattr(patterns, "registered", lambda: known)
    assert not stems(module)
    assert partition(module, BACKENDS, other) == with_stems
