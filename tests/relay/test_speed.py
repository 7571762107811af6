"""The work of reading and writing large networks, counted in calls of functions.

300 operators of text are read within a second: a call takes half a microsecond of a core.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from convoy import relay
from convoy.errors import RelaySyntaxError
from convoy.relay import testing
from convoy.relay.ast import Call, Op
from convoy.relay.visit import post_order

from .counting import calls

#: Calls for each operator.
READ_TEXT, READ_JSON, WRITE_TEXT, WRITE_JSON = 3000, 1600, 500, 4000

#: Calls that prepare the grammar, once in a process.
GRAMMAR = 2_200_000


def operators(mod: relay.IRModule) -> int:
    return sum(isinstance(n, Call) and isinstance(n.op, Op) for n in post_order(mod["main"]))


def chain(blocks: int) -> relay.IRModule:
    """Five operators in each block, with constants."""
    rng = np.random.default_rng(0)
    value = x = relay.var("x", shape=(1, 8, 16, 16))
    for _ in range(blocks):
        weight = relay.const(rng.normal(size=(8, 8, 3, 3)).astype("float32"))
        y = relay.nn.conv2d(value, weight, channels=8, kernel_size=3, padding=1)
        y = relay.nn.relu(relay.nn.bias_add(y, relay.const(np.ones(8, "float32"))))
        value = relay.clip(relay.add(y, value), -6.0, 6.0)
    mod = relay.IRModule.from_expr(relay.Function([x], value))
    assert operators(mod) == 5 * blocks
    return relay.transform.InferType()(mod)


def work(mod: relay.IRModule) -> dict[int, int]:
    """The calls to read and write a network, by those that are allowed for each operator."""
    text, json = mod.astext(), relay.save_json(mod)
    assert relay.structural_equal(relay.parse(text), mod)
    assert relay.structural_equal(relay.load_json(json), mod)
    return {
        READ_TEXT: calls(lambda: relay.parse(text)),
        READ_JSON: calls(lambda: relay.load_json(json)),
        WRITE_TEXT: calls(mod.astext),
        WRITE_JSON: calls(lambda: relay.save_json(mod)),
    }


@pytest.mark.parametrize("network", ["Inception-v3", "chain"])
def test_calls_for_an_operator(network: str) -> None:
    mod = chain(80) if network == "chain" else testing.inception_v3.get_workload()[0]
    assert operators(mod) >= 300
    for most, found in work(mod).items():
        assert found <= most * operators(mod)


def test_work_grows_with_the_network() -> None:
    small, large = work(chain(40)), work(chain(160))
    for most, found in large.items():
        assert found <= 4.2 * small[most]


def test_first_text_of_a_process(tmp_path: Path) -> None:
    """With the grammar to prepare, in a process that has just started."""
    mod = chain(60)
    (tmp_path / "net.relay").write_text(mod.astext())
    script = (
        "import cProfile, pstats, sys\nfrom convoy import relay\n"
        "text = open(sys.argv[1]).read()\n"
        "with cProfile.Profile() as profile: relay.parse(text)\n"
        "print(pstats.Stats(profile).total_calls)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "net.relay")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) <= GRAMMAR + READ_TEXT * operators(mod)


def test_collection_goes_on_after_reading() -> None:
    mod = chain(1)
    relay.parse(mod.astext())
    relay.load_json(relay.save_json(mod))
    with pytest.raises(RelaySyntaxError):
        relay.parse("#[")
    assert gc.isenabled()
    gc.disable()
    try:
        relay.parse(mod.astext())
        assert not gc.isenabled()
    finally:
        gc.enable()
