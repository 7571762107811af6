"""Reading large networks: 300 operators of text within a second, 400 of JSON within two."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from convoy import relay
from convoy.relay import testing
from convoy.relay.ast import Call, Op
from convoy.relay.visit import post_order

# Half of what is promised, of the processor's time, so that a busy machine does not matter.
TEXT_SECONDS, JSON_SECONDS = 0.5, 1.0


def operators(mod: relay.IRModule) -> int:
    return sum(isinstance(n, Call) and isinstance(n.op, Op) for n in post_order(mod["main"]))


@pytest.fixture(scope="module")
def inception() -> relay.IRModule:
    mod = testing.inception_v3.get_workload()[0]
    assert operators(mod) >= 300
    return mod


@pytest.fixture(scope="module")
def chain() -> relay.IRModule:
    """400 operators in blocks, each with constants."""
    rng = np.random.default_rng(0)
    value = x = relay.var("x", shape=(1, 8, 16, 16))
    for _ in range(80):
        weight = relay.const(rng.normal(size=(8, 8, 3, 3)).astype("float32"))
        y = relay.nn.conv2d(value, weight, channels=8, kernel_size=3, padding=1)
        y = relay.nn.relu(relay.nn.bias_add(y, relay.const(np.ones(8, "float32"))))
        value = relay.clip(relay.add(y, value), -6.0, 6.0)
    mod = relay.IRModule.from_expr(relay.Function([x], value))
    assert operators(mod) == 400
    return relay.transform.InferType()(mod)


def test_text(inception: relay.IRModule) -> None:
    text = inception.astext()
    relay.parse(text[: text.index("\n")] + "def @main(%x: float32) { %x }")  # prepares the grammar
    start = time.process_time()
    mod = relay.parse(text)
    assert time.process_time() - start < TEXT_SECONDS
    assert relay.structural_equal(mod, inception)


def test_json(chain: relay.IRModule) -> None:
    text = relay.save_json(chain)
    start = time.process_time()
    mod = relay.load_json(text)
    assert time.process_time() - start < JSON_SECONDS
    assert relay.structural_equal(mod, chain)


def test_writing(chain: relay.IRModule) -> None:
    start = time.process_time()
    chain.astext()
    relay.save_json(chain)
    assert time.process_time() - start < JSON_SECONDS


def test_first_text_of_a_process(inception: relay.IRModule, tmp_path: Path) -> None:
    """With the grammar to prepare, in a process that has just started."""
    path = tmp_path / "net.relay"
    path.write_text(inception.astext())
    script = (
        "import sys, time\nfrom convoy import relay\n"
        f"text = open({str(path)!r}).read()\n"
        "start = time.process_time()\nrelay.parse(text)\nprint(time.process_time() - start)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert float(done.stdout) < 1
