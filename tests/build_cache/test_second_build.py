"""The same build again, on the CPU: what comes from the cache, and what does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tvm

import convoy
from convoy import relay
from convoy.build_cache import key
from convoy.build_cache.source import Source
from convoy.ir.device import Device
from convoy.relay.convert import to_relax

TEXT = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 3, 9, 9), float32], %w: Tensor[(4, 3, 3, 3), float32]) {
  nn.relu(nn.conv2d(%data, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]))
}
"""
WEIGHTS = {"w": np.random.default_rng(2).uniform(-1, 1, (4, 3, 3, 3)).astype("float32")}
OPTIONS = {"precision": "float16", "backends": ("cudnn", "tvm"), "device": None}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CONVOY_MODULE_CACHE_BYTES")
    return tmp_path / "modules"


def network(text: str = TEXT) -> tvm.IRModule:
    return to_relax(relay.parse(text))


def test_the_second_build_is_the_first_one(cache_folder: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(4).uniform(-1, 1, (1, 3, 9, 9)).astype("float32")
    first = convoy.build(network(), "llvm", WEIGHTS)
    stages: list[str] = []
    second = convoy.build(network(), "llvm", WEIGHTS, progress=lambda name, *_: stages.append(name))
    assert second.content and not first.content and not stages
    assert second.meta == first.meta
    np.testing.assert_array_equal(second.session()(x)[0], first.session()(x)[0])
    second.export_library(tmp_path / "net.so")
    loaded = convoy.load(tmp_path / "net.so")
    np.testing.assert_array_equal(loaded.session()(x)[0], first.session()(x)[0])
    assert not convoy.build(network(), "llvm", WEIGHTS, cache=False).content
    other = {"w": WEIGHTS["w"] + 1}
    changed = convoy.build(network(), "llvm", other)
    assert not changed.content
    assert not np.array_equal(changed.session()(x)[0], first.session()(x)[0])


_BUILD = """
from tests.build_cache.test_second_build import WEIGHTS, network
import convoy
print("ready", flush=True)
convoy.build(network(), "llvm", WEIGHTS)
"""


def building(folder: Path) -> subprocess.Popen[str]:
    """Another process that has its imports behind it and builds the network."""
    env = {**os.environ, "CONVOY_CACHE_DIR": str(folder)}
    root = Path(__file__).resolve().parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", _BUILD], cwd=root, env=env, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


@pytest.mark.slow
def test_killed_at_any_time_or_twice_at_once_the_next_build_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(5).uniform(-1, 1, (1, 3, 9, 9)).astype("float32")
    want = convoy.build(network(), "llvm", WEIGHTS, cache=False).session()(x)[0]
    whole = building(tmp_path / "whole")
    started = time.monotonic()
    assert whole.wait() == 0
    seconds = time.monotonic() - started
    for part in range(5):
        child = building(tmp_path / f"{part}")
        time.sleep(seconds * part / 5)
        child.kill()
        child.wait()
        monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / f"{part}"))
        found = convoy.build(network(), "llvm", WEIGHTS).session()(x)[0]
        np.testing.assert_array_equal(found, want)
    both = [building(tmp_path / "both") for _ in range(2)]
    assert [child.wait() for child in both] == [0, 0]
    assert len(list((tmp_path / "both" / "modules").glob("*.json"))) == 1


_WITHOUT_SPACE = """
from tests.build_cache.test_second_build import WEIGHTS, network
import resource, signal, sys
import numpy as np
import convoy
from convoy.errors import CacheUnwritable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
built = convoy.build(network(), "llvm", WEIGHTS)
assert built.session()(np.ones((1, 3, 9, 9), "float32"))[0].any()
try:
    built.export_library(sys.argv[1])
except CacheUnwritable as err:
    print(err)
"""


def test_a_full_disk_ends_neither_the_build_nor_the_process(tmp_path: Path) -> None:
    """LLVM ends the process when it cannot write an object file; Python keeps byte code that was
    written in part."""
    env = {**os.environ, "CONVOY_CACHE_DIR": str(tmp_path / "cache")}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPACE, str(tmp_path / "net.so")],
        cwd=Path(__file__).resolve().parents[2], env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "net.so, which cannot be written" in done.stdout and "File too large" in done.stdout
    assert "the module is not kept for the next build" in done.stderr
    assert not list(tmp_path.glob("*.so")) and not list(tmp_path.glob("cache/modules/*"))


def build_key(mod: tvm.IRModule, *others: object) -> str | None:
    return key.build_key([Source.of(mod)], *others)  # type: ignore[arg-type]


def keys() -> dict[str, str | None]:
    """The key of a build, and those of builds that differ from it in one thing."""
    bound = network()
    other = {"w": WEIGHTS["w"].copy()}
    other["w"][0, 0, 0, 0] += 1e-6
    with tvm.transform.PassContext(opt_level=1):
        context = build_key(bound, "cuda", WEIGHTS, OPTIONS)
    return {
        "same": build_key(network(), "cuda", dict(WEIGHTS), dict(OPTIONS)),
        "weight": build_key(bound, "cuda", other, OPTIONS),
        "no weights": build_key(bound, "cuda", None, OPTIONS),
        "target": build_key(bound, "llvm", WEIGHTS, OPTIONS),
        "stride": build_key(network(TEXT.replace("padding=[1", "strides=[2, 2], padding=[1")),
                            "cuda", WEIGHTS, OPTIONS),
        "input name": build_key(network(TEXT.replace("data", "image")), "cuda", WEIGHTS, OPTIONS),
        "option": build_key(bound, "cuda", WEIGHTS, OPTIONS | {"precision": "tf32"}),
        "backends": build_key(bound, "cuda", WEIGHTS, OPTIONS | {"backends": ("tvm", "cudnn")}),
        "device": build_key(bound, "cuda", WEIGHTS, OPTIONS | {"device": Device(sm_count=4)}),
        "context": context,
    }  # fmt: skip


def test_one_difference_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = keys()
    assert found["same"] == build_key(network(), "cuda", WEIGHTS, OPTIONS)
    monkeypatch.setenv("CONVOY_RECORDS_DIR", str(tmp_path))
    found["shipped records"] = build_key(network(), "cuda", WEIGHTS, OPTIONS)
    assert None not in found.values()
    assert len(set(found.values())) == len(found)


def test_constants_count_by_their_values() -> None:
    one, same, other = (
        to_relax(relay.parse(TEXT), {"w": WEIGHTS["w"] * scale}) for scale in (1, 1, 2)
    )
    key, again, changed = (build_key(m, "cuda", None, OPTIONS) for m in (one, same, other))
    assert key == again != changed


def test_what_cannot_be_told_by_its_content_has_no_key() -> None:
    from convoy.backends.tvm import TvmBackend

    assert build_key(network(), "cuda", None, OPTIONS | {"backends": (TvmBackend(),)}) is None
    assert build_key(network(), "cuda", None, OPTIONS | {"backends": ("theirs",)}) is None
    assert build_key(network(), "cuda", None, OPTIONS | {"costs": object()}) is None
