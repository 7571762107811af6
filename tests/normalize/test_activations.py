"""Activations are known by their values, whatever the spelling; what only looks like one is not."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.activation_values import activate
from convoy.normalize.normal_form import normalize
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net, count_ops, relative_error
from ..helpers.longest import longest
from .test_normalize import check_same

#: Exporters decompose some and keep others: (arguments, the epilogue behind a convolution).
TORCH = {
    "GELU()": "bias_gelu",
    "GELU(approximate='tanh')": "bias_gelu_tanh",
    "Hardswish()": "bias_hardswish",
    "Hardsigmoid()": "bias_clip[0,1]",
    "LeakyReLU(0.1)": "bias_leaky_relu[0.1]",
    "ELU(0.7)": "bias_elu[0.7]",
    "CELU()": "bias_elu[1.0]",
    "Mish()": "bias_mish",
    "Softplus()": "bias_softplus",
    "PReLU(init=0.2)": "bias_leaky_relu[0.2]",
    "PReLU(8, init=0.3)": "bias_leaky_relu[0.3]",
    "SiLU()": "bias_silu",
    "Tanh()": "bias_tanh",
    "ReLU6()": "bias_clip[0,6]",
    "Hardtanh()": "bias_clip[-1,1]",
}


def epilogues(mod, dtype="float16"):
    normal = normalize(mod, dtype=dtype, pad_channels=1)
    return [s.workload.epilogue.name for s in longest(find_subgraphs(normal))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("layer", TORCH)
def test_layers_of_torch(layer, decomposed):
    torch = pytest.importorskip("torch")
    from tvm.relax.frontend.torch import from_exported_program

    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), eval(f"torch.nn.{layer}", {"torch": torch}))
    x = torch.randn(1, 4, 6, 6) * 3
    exported = torch.export.export(net.eval(), (x,))
    if layer == "Mish()" and not decomposed:
        pytest.skip("TVM's importer takes it in parts alone")
    mod = from_exported_program(exported, run_ep_decomposition=decomposed)
    rounded = re.sub(r"0\.\d+", lambda m: f"{float(m[0]):.3g}", epilogues(mod)[0])
    assert rounded == TORCH[layer]


def chain(spell):
    """A convolution with something behind it; ``spell`` gets emit and the convolution's result."""
    net = Net((1, 4, 5, 5), "NHWC")
    y = net.bias(net.conv(net.x, 8, 1))
    return net.finish(net.emit(spell(net.emit, y)))


def chains(spells):
    """One network with a convolution for each."""
    net = Net((1, 4, 5, 5), "NHWC")
    outputs = []
    for spell in spells:
        y = net.bias(net.conv(net.x, 8, 1))
        outputs.append(net.emit(spell(net.emit, y)))
    return net.finish(*outputs)


def number(value, dtype="float32"):
    return relax.const(np.asarray(value, dtype).astype("float32"))


def gelu(e, x, root=2**0.5, half=0.5, half_first=False):
    share = e(op.add(e(op.erf(e(op.divide(x, number(root))))), number(1.0)))
    if half_first:
        return op.multiply(e(op.multiply(x, number(half))), share)
    return op.multiply(e(op.multiply(x, share)), number(half))


def gelu_tanh(e, x, factor=0.044715, root=(2 / math.pi) ** 0.5):
    cube = e(op.power(x, number(3.0)))
    inner = e(op.add(x, e(op.multiply(cube, number(factor)))))
    share = e(op.add(number(1.0), e(op.tanh(e(op.multiply(inner, number(root)))))))
    return op.multiply(e(op.multiply(number(0.5), x)), share)


def leaky(e, x, slope=0.2, test=op.greater):
    return op.where(e(test(x, number(0.0))), x, e(op.multiply(x, number(slope))))


SPELLINGS = {
    "gelu of BERT": ("bias_gelu", gelu),
    "gelu of ONNX": ("bias_gelu", lambda e, x: gelu(e, x, half_first=True)),
    "gelu with float16 constants": (
        "bias_gelu",
        lambda e, x: gelu(e, x, root=np.float16(2**0.5)),
    ),
    "gelu by a product": (
        "bias_gelu",
        lambda e, x: op.multiply(
            e(op.add(e(op.multiply(e(op.erf(e(op.multiply(x, number(0.70710677))))), number(0.5))),
                     number(0.5))), x),
    ),
    "gelu_tanh of GPT-2": ("bias_gelu_tanh", gelu_tanh),
    "gelu_tanh with float16 constants": (
        "bias_gelu_tanh",
        lambda e, x: gelu_tanh(e, x, np.float16(0.044715), np.float16(0.7978845)),
    ),
    "hardswish in order": (
        "bias_hardswish",
        lambda e, x: op.divide(
            e(op.multiply(x, e(op.clip(e(op.add(x, number(3.0))), 0.0, 6.0)))), number(6.0)
        ),
    ),
    "hardswish of HardSigmoid": (
        "bias_hardswish",
        lambda e, x: op.multiply(
            e(op.clip(e(op.add(e(op.multiply(x, number(1 / 6, "float16"))), number(0.5))), 0.0,
                      1.0)), x),
    ),
    "hardswish with relu6": (
        "bias_hardswish",
        lambda e, x: op.multiply(
            x, e(op.multiply(e(op.nn.relu6(e(op.add(x, number(3.0))))), number(1 / 6)))
        ),
    ),
    "silu": ("bias_silu", lambda e, x: op.multiply(e(op.sigmoid(x)), x)),
    "silu by exp": (
        "bias_silu",
        lambda e, x: op.divide(x, e(op.add(number(1.0), e(op.exp(e(op.negative(x))))))),
    ),
    "mish of ONNX": (
        "bias_mish",
        lambda e, x: op.multiply(x, e(op.tanh(e(op.log(e(op.add(number(1.0), e(op.exp(x))))))))),
    ),
    "mish of softplus": (
        "bias_mish", lambda e, x: op.multiply(x, e(op.tanh(e(op.nn.softplus(x)))))
    ),
    "leaky_relu by maximum": (
        "bias_leaky_relu[0.1]",
        lambda e, x: op.maximum(x, e(op.multiply(x, number(0.1)))),
    ),
    "leaky_relu by where": ("bias_leaky_relu[0.2]", leaky),
    "leaky_relu by less": (
        "bias_leaky_relu[0.25]",
        lambda e, x: op.where(
            e(op.less(x, number(0.0))), e(op.multiply(number(0.25), x)), x
        ),
    ),
    "leaky_relu of two relus": (
        "bias_leaky_relu[0.3]",
        lambda e, x: op.subtract(
            e(op.nn.relu(x)), e(op.multiply(e(op.nn.relu(e(op.negative(x)))), number(0.3)))
        ),
    ),
    "elu by where": (
        "bias_elu[0.5]",
        lambda e, x: op.where(
            e(op.greater(x, number(0.0))), x,
            e(op.multiply(number(0.5), e(op.subtract(e(op.exp(x)), number(1.0)))))),
    ),
    "elu by relus": (
        "bias_elu[1.0]",
        lambda e, x: op.add(
            e(op.nn.relu(x)),
            e(op.multiply(number(-1.0), e(op.nn.relu(e(op.subtract(number(1.0), e(op.exp(x)))))))),
        ),
    ),
    "tanh by sigmoid": (
        "bias_tanh",
        lambda e, x: op.subtract(
            e(op.multiply(e(op.sigmoid(e(op.multiply(x, number(2.0))))), number(2.0))), number(1.0)
        ),
    ),
    "through a cast": (
        "bias_gelu",
        lambda e, x: op.astype(e(gelu(e, e(op.astype(x, "float32")))), "float32"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name):
    wanted, spell = SPELLINGS[name]
    assert epilogues(chain(spell)) == [wanted]


@pytest.mark.parametrize("rounded", [False, True])
def test_all_spellings_compute_the_same(rounded):
    """Those with constants of float16 compute what was meant, not what was rounded."""
    spells = [
        spell
        for name, (_, spell) in SPELLINGS.items()
        if ("float16" in name or "HardSigmoid" in name) == rounded
    ]
    check_same(chains(spells), tolerance=5e-4 if rounded else 1e-5)


NEAR_MISSES = {
    "sigmoid of 1.702 x": lambda e, x: op.multiply(
        x, e(op.sigmoid(e(op.multiply(x, number(1.702)))))
    ),
    "gelu with another factor": lambda e, x: gelu(e, x, root=1.5),
    "gelu of half": lambda e, x: gelu(e, x, half=0.51),
    "gelu_tanh with another cube": lambda e, x: gelu_tanh(e, x, factor=0.06),
    "hardswish cut at 5": lambda e, x: op.divide(
        e(op.multiply(x, e(op.clip(e(op.add(x, number(3.0))), 0.0, 5.0)))), number(6.0)
    ),
    "slopes on both sides": lambda e, x: op.where(
        e(op.greater(x, number(0.0))), e(op.multiply(x, number(1.1))),
        e(op.multiply(x, number(0.1)))),
    "a kink beside zero": lambda e, x: op.where(
        e(op.greater(x, number(0.5))), x, e(op.multiply(x, number(0.1)))),
    "rounded to integers": lambda e, x: op.maximum(
        e(op.astype(e(op.astype(x, "int32")), "float32")), number(0.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name):
    assert epilogues(chain(NEAR_MISSES[name])) == ["bias"]


def test_a_bound_above_zero_is_no_relu():
    """What a norm is bounded by where it is divided by."""
    net = Net((1, 4, 5, 5), "NHWC")
    twice = net.emit(op.negative(net.emit(op.negative(net.x))))
    mod = net.finish(net.emit(op.maximum(twice, number(1e-12))))
    assert "relax.nn.relu" not in count_ops(normalize(mod, dtype="float32"))


@pytest.mark.parametrize("added", [1e-8, 1e-12])
@pytest.mark.parametrize("function", [op.abs, op.nn.silu, op.sigmoid, op.nn.softplus, op.tanh])
def test_what_keeps_a_divisor_from_zero_stays(function, added):
    """As in ``x / (abs(x) + 1e-8)`` and ``log(sigmoid(x) + 1e-8)``."""
    net = Net((1, 4, 5, 5), "NHWC")
    mod = net.finish(net.emit(op.add(net.emit(function(net.x)), number(added))))
    assert count_ops(normalize(mod, dtype="float32"))["relax.add"] == 1


def test_near_misses_compute_the_same():
    check_same(chains(NEAR_MISSES.values()))


def test_two_tensors_are_no_activation():
    """x * sigmoid(y) gates; PReLU with a slope for each channel is left as it is."""
    net = Net((1, 4, 5, 5), "NHWC")
    a, b = net.conv(net.x, 8, 1), net.conv(net.x, 8, 1)
    mod = net.finish(net.emit(op.multiply(a, net.emit(op.sigmoid(b)))))
    assert sorted(epilogues(mod)) == ["", "sigmoid"]
    slopes = relax.const(np.linspace(0, 1, 8, dtype="float32"))
    assert epilogues(chain(lambda e, x: op.nn.prelu(x, slopes, 3))) == ["bias"]


def test_hard_sigmoid_and_clips():
    """A hard sigmoid's scale goes into the weights; clips behind each other are one."""
    spells = {
        "clip[0,1]": lambda e, x: op.divide(
            e(op.clip(e(op.add(x, number(3.0))), 0.0, 6.0)), number(6.0)
        ),
        "clip[0,1] ": lambda e, x: op.clip(
            e(op.add(e(op.multiply(x, number(0.2))), number(0.5))), 0.0, 1.0
        ),
        "clip[0,6]": lambda e, x: op.clip(e(op.clip(x, 0.0, math.inf)), -math.inf, 6.0),
        "relu": lambda e, x: op.clip(e(op.clip(x, 0.0, math.inf)), -math.inf, math.inf),
    }
    mod = chains(spells.values())
    assert sorted(epilogues(mod)) == sorted(f"bias_{name.strip()}" for name in spells)
    check_same(mod)


@given(st.sampled_from(WITH_ALPHA), st.floats(-2, 3).filter(lambda a: abs(a) > 1e-3))
@settings(max_examples=12, deadline=None)
def test_any_alpha(name, alpha):
    alpha = float(np.float32(alpha))
    if abs(alpha - 1) < 1e-3:
        return
    below = {
        "leaky_relu": lambda e, x: x,
        "elu": lambda e, x: e(op.subtract(e(op.exp(x)), number(1.0))),
    }

    def spell(e, x):
        scaled = e(op.multiply(below[name](e, x), number(alpha)))
        return op.where(e(op.greater_equal(x, number(0.0))), x, scaled)

    mod = chain(spell)
    (found,) = epilogues(mod)
    assert found.startswith(f"bias_{name}[")
    assert float(found.split("[")[1][:-1]) == pytest.approx(alpha, rel=1e-5)


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if n not in ("none", "clip")])
def test_values_against_torch(name):
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    theirs = {
        "relu": f.relu, "sigmoid": torch.sigmoid, "silu": f.silu, "gelu": f.gelu,
        "gelu_tanh": lambda t: f.gelu(t, approximate="tanh"), "hardswish": f.hardswish,
        "leaky_relu": lambda t: f.leaky_relu(t, 0.3), "tanh": torch.tanh,
        "elu": lambda t: f.elu(t, 0.3), "mish": f.mish, "softplus": f.softplus,
    }[name]  # fmt: skip
    x = np.concatenate([np.linspace(-30, 30, 4001), [1e-9, -1e-9, 1e4, -1e4]])
    want = theirs(torch.tensor(x)).numpy()
    assert relative_error(activate(name, x, 0.3 if name in WITH_ALPHA else 0.0), want) < 1e-8
