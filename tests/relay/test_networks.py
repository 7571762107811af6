"""The network builders: sizes, and equality with what TVM's builders gave."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay import testing
from convoy.relay.visit import post_order

from .running import relative_error, run_graph, run_stock

# Calls of operators and bytes of parameters, batch 1, as TVM 0.18 counts them.
NETWORKS: dict[str, tuple[Any, int, int]] = {
    "resnet18": (lambda: testing.resnet.get_workload(), 72, 46799568),
    "resnet50": (lambda: testing.resnet.get_workload(num_layers=50), 176, 102380240),
    "resnet50_nhwc": (
        lambda: testing.resnet.get_workload(
            num_layers=50, image_shape=(224, 224, 3), layout="NHWC"
        ),
        176,
        102380240,
    ),
    "resnet20_cifar": (
        lambda: testing.resnet.get_workload(1, 10, 20, (3, 32, 32)),
        75,
        1095704,
    ),
    "inception_v3": (lambda: testing.inception_v3.get_workload(), 311, 95476000),
    "mobilenet": (lambda: testing.mobilenet.get_workload(), 86, 17015456),
    "squeezenet_v1_1": (lambda: testing.squeezenet.get_workload(version="1.1"), 93, 4941984),
    "densenet121": (lambda: testing.densenet.get_workload(batch_size=1), 374, 14275232),
    "dcgan": (lambda: testing.dcgan.get_workload(1), 14, 50632704),
    "vgg11": (lambda: testing.vgg.get_workload(1), 41, 531453344),
    "mlp": (lambda: testing.mlp.get_workload(1), 10, 437544),
    # Not TVM's; parameters of the last two as torchvision counts them, with running statistics.
    "googlenet": (lambda: testing.googlenet.get_workload(), 199, 27994208),
    "mobilenet_v2": (lambda: testing.mobilenet_v2.get_workload(), 155, 4 * (3504872 + 34112)),
    "resnext50": (lambda: testing.resnext.get_workload(), 177, 4 * (25028904 + 68224)),
}
HEAVY = {"vgg11"}  # half a gigabyte of random numbers


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in HEAVY else n for n in NETWORKS]
)
def test_sizes(name: str) -> None:
    make, calls, size = NETWORKS[name]
    mod, params = make()
    found = Counter(
        n.op.name
        for n in post_order(mod["main"])
        if isinstance(n, relay.Call) and isinstance(n.op, relay.op.get("add").__class__)
    )
    assert sum(found.values()) == calls
    assert sum(value.numpy().nbytes for value in params.values()) == size
    assert set(params) == {v.name_hint for v in mod["main"].params} - {"data"}


@pytest.mark.parametrize(
    "name", ["resnet18", "resnet50", "resnet50_nhwc", "mobilenet", "squeezenet_v1_1", "mlp"]
)
def test_same_as_the_corpus(corpus: Path, name: str) -> None:
    mod, _ = NETWORKS[name][0]()
    saved = relay.parse((corpus / "models" / f"{name}.relay").read_text())
    assert relay.structural_equal(mod, saved)
    assert [p.name_hint for p in mod["main"].params] == [p.name_hint for p in saved["main"].params]


LIGHT = {"mlp"}


@pytest.mark.parametrize(
    "name", [n if n in LIGHT else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]
)
def test_text_json_build_run(name: str) -> None:
    """Written and read twice, built with the normal form, and run: as TVM's own pipeline does it
    without any of that."""
    mod, params = NETWORKS[name][0]()
    read = relay.load_json(relay.save_json(relay.parse(mod.astext())))
    assert relay.structural_equal(read, mod)
    main = read["main"]
    if main.body.op.name == "nn.softmax":  # whose probabilities hide errors
        read = relay.IRModule.from_expr(relay.Function(main.params, main.body.args[0]))
    shape = read["main"].params[0].checked_type.concrete_shape
    data = np.random.default_rng(7).uniform(-1, 1, shape).astype("float32")
    (got,) = run_graph(read, {"data": data}, params)
    (want,) = run_stock(read, data, params=params)
    assert relative_error(got, want) < 1e-5


def test_parameters_are_those_of_the_seed() -> None:
    _, first = testing.mlp.get_workload(1)
    _, second = testing.mlp.get_workload(1)
    for name, value in first.items():
        np.testing.assert_array_equal(value.numpy(), second[name].numpy())
    weight = first["fc1_weight"].numpy()
    limit = np.sqrt(3 / ((784 + 128) / 2))
    assert 0.9 * limit < np.abs(weight).max() <= limit
    assert not first["fc1_bias"].numpy().any()


def test_unknown_sizes() -> None:
    with pytest.raises(ValueError, match="18"):
        testing.resnet.get_net(1, 1000, 17)
    with pytest.raises(ValueError, match=r"1\.1"):
        testing.squeezenet.get_net(1, (3, 224, 224), 1000, "2", "float32")
