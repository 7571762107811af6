"""Training steps on the CPU against the same steps in numpy: losses and every part of the state."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import convoy
from convoy.errors import InvalidOption, UnsupportedOp
from convoy.training import Network, Sgd, TrainingSession, small_resnet, train_step
from convoy.training.resnet import basic_blocks

from .reference import descend

RATE = 0.05


def batches(count, batch, image, channels, classes=10, seed=1):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        x = rng.standard_normal((batch, image, image, channels)).astype(np.float32)
        yield x, rng.integers(0, classes, batch).astype(np.int32)


def compare(net, build, data, optimizer, limit=1e-4, precision="float32", steps_of_state=3):
    """Losses of each step, and the state after the first few, relative to its largest entry."""
    step = net.step(optimizer)
    session = TrainingSession(
        convoy.build(step.module, "llvm", precision=precision), step, net.initial, RATE
    )
    state = {k: v.astype(np.float64) for k, v in net.initial.items()}
    for i, (x, labels) in enumerate(data):
        got = session(x=x, labels=labels)
        want = descend(build, x, labels, state, RATE, optimizer.momentum, optimizer.weight_decay)
        assert got == pytest.approx(want, rel=limit), f"step {i}"
        if i < steps_of_state:
            found = session.state()
            for name, value in state.items():
                error = np.abs(found[name] - value).max() / (np.abs(value).max() + 1e-3)
                assert error < 20 * limit, f"{name} after step {i}: {error:.1e}"


@pytest.mark.parametrize("norm", [True, False], ids=["norms", "biases"])
@pytest.mark.parametrize("optimizer", [Sgd(), Sgd(0.9, 1e-3)], ids=["sgd", "momentum"])
def test_small_resnet(norm, optimizer):
    net = small_resnet(6, image=8, channels=2, widths=(8, 12), norm=norm)
    compare(net, lambda t: basic_blocks(t, (8, 12), 10, norm), batches(5, 6, 8, 2), optimizer)


def layers(net):
    """What ResNet-50 has and the small one has not: a pool, dilation, groups, a large stride."""
    x = net.relu(net.batch_norm(net.conv(net.x, 8, 7, 2, name="a"), name="an"))
    x = net.max_pool(x, 3, 2, 1)
    y = net.conv(x, 12, 3, 1, dilation=2, groups=2, name="b")
    z = net.conv(x, 12, 3, 1, padding=1, bias=True, name="c")
    x = net.relu(net.batch_norm(net.add(y, z), name="bn"))
    x = net.relu(net.conv(x, 10, 3, 3, padding=0, name="d"))
    return net.dense(net.mean(x), 7, name="classifier")


def test_layers_of_large_networks():
    net = Network(3, 21, 21, 3)
    data = batches(4, 3, 21, 3, classes=7)
    compare(net.finish(layers(net)), layers, data, Sgd(0.9))


def test_half_precision_follows():
    net = small_resnet(6, image=8, channels=2, widths=(8, 12))
    compare(
        net, lambda t: basic_blocks(t, (8, 12), 10, True), batches(4, 6, 8, 2), Sgd(0.9),
        limit=2e-2, precision="float16", steps_of_state=0,
    )  # fmt: skip


def quadratic():
    x = relax.Var("x", relax.TensorType((4, 3), "float32"))
    w = relax.Var("w", relax.TensorType((3, 2), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            y = bb.emit(relax.op.matmul(x, w))
            loss = bb.emit_output(relax.op.sum(bb.emit(relax.op.multiply(y, y))))
        bb.emit_func_output(loss)
    return bb.get()


def test_any_loss_can_be_descended():
    step = train_step(quadratic(), ["w"])
    assert step.inputs == ("x", "learning_rate") and step.state == ("w",)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (3, 2)))
    session = TrainingSession(convoy.build(step.module, "llvm"), step, {"w": w}, 0.01)
    losses = []
    for _ in range(3):
        losses.append(session(x=x))
        assert losses[-1] == pytest.approx(float(np.sum((x @ w) ** 2)), rel=1e-5)
        w = w - 0.01 * 2 * x.T @ (x @ w)
    assert losses[2] < losses[0]


def test_mistakes_are_named():
    with pytest.raises(InvalidOption, match="parameter 'v'"):
        train_step(quadratic(), ["v"])
    with pytest.raises(InvalidOption, match="no trainable"):
        train_step(quadratic(), [])
    net = small_resnet(2, widths=(4,))
    step = net.step()
    with pytest.raises(InvalidOption, match="stem_weight"):
        step.initial_state({**net.initial, "stem_weight": np.zeros(3, np.float32)})
    mod = tvm.IRModule(quadratic().functions)
    with pytest.raises(InvalidOption, match="scalar"):
        main = mod["main"]
        block = main.body.blocks[0]
        body = relax.SeqExpr([block], block.bindings[0].var)
        result = relax.Function(main.params, body, block.bindings[0].var.ty)
        train_step(tvm.IRModule({"main": result}), ["w"])


@pytest.mark.parametrize(
    ("operator", "match"),
    [
        (relax.op.cumprod, r"no gradient of relax\.cumprod"),
        (lambda x: relax.op.nn.pad(x, [1, 1], pad_mode="reflect"), "nn.pad with mode reflect"),
    ],
    ids=["no rule", "a rule that declines"],
)
def test_operators_without_a_gradient_are_named(operator, match):
    w = relax.Var("w", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [w]):
        with builder.dataflow():
            loss = builder.emit_output(relax.op.sum(builder.emit(operator(w))))
        builder.emit_func_output(loss)
    with pytest.raises(UnsupportedOp, match=match):
        train_step(builder.get(), ["w"])
