"""Entries of the module cache: faults while they are written, damage, eviction, records."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from convoy import errors
from convoy.build_cache import store
from convoy.build_cache.store import ModuleCache, records_digest
from convoy.ir.artifact import Meta
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.sealed_file import sealed, write_sealed
from convoy.ir.workload import Workload
from convoy.records.environment import Environment
from convoy.records.record import Record
from convoy.records.store import RecordStore
from convoy.runtime.compiled import CompiledModule

KEY = "0" * 64
ONE = Workload("fprop", 1, 8, 8, 64, 64, 3, 3, padding=(1, 1, 1, 1))
OTHER = Workload("fprop", 1, 8, 8, 64, 128, 3, 3, padding=(1, 1, 1, 1))


@dataclasses.dataclass
class Linked:
    """Stands for a TVM executable: its shared object is a few bytes."""

    body: bytes

    def export_library(self, file: str, workspace_dir: str, options: Sequence[str]) -> None:
        assert Path(file).parent == Path(workspace_dir), "temporary files lie beside it"
        Path(file).write_bytes(self.body)


def module(body: bytes = b"first") -> CompiledModule:
    return CompiledModule(Linked(body), Meta((), (), "llvm", "float32"))


@pytest.fixture(autouse=True)
def loading_takes_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        store, "load_content", lambda content, name: dataclasses.replace(module(), content=content)
    )


@pytest.fixture
def cache(tmp_path: Path) -> ModuleCache:
    return ModuleCache(tmp_path / "modules", most_bytes=1 << 20)


def body_of(found: CompiledModule | None) -> bytes | None:
    return None if found is None else found.content[: found.content.index(b"\0")][:5]


def record(workload: Workload, us: float = 4.0) -> Record:
    environment = Environment(gpu="NVIDIA H200", boot=f"{us}")  # each with a header of its own
    return Record(workload, Candidate("cudnn", "eng1"), Measurement(kernel_us=us), environment)


def test_what_was_put_is_found_and_can_be_exported(cache: ModuleCache, tmp_path: Path) -> None:
    cache.put(KEY, module(), tmp_path / "records.jsonl", ())
    found = cache.get(KEY, tmp_path / "records.jsonl")
    assert found is not None
    found.export_library(tmp_path / "again.so")
    write_sealed(
        tmp_path / "once.so", lambda _: sealed(lambda file: Path(file).write_bytes(b"first"))
    )
    assert (tmp_path / "again.so").read_bytes() == (tmp_path / "once.so").read_bytes()
    with pytest.warns(UserWarning, match="cache=False"):
        found.export_library(tmp_path / "again.so", cc="gcc")
    assert cache.get("1" * 64, tmp_path / "records.jsonl") is None


def test_only_records_of_its_workloads_make_it_stale(cache: ModuleCache, tmp_path: Path) -> None:
    own = tmp_path / "records.jsonl"
    records = RecordStore(write_to=own)
    records.append(record(ONE))
    cache.put(KEY, module(), own, [ONE])
    records.append(record(OTHER, 5.0))
    assert cache.get(KEY, own) is not None
    records.append(record(ONE, 3.0))
    assert cache.get(KEY, own) is None, "a new measurement may change the choice"
    cache.put(KEY, module(), own, None)
    records.append(record(OTHER, 6.0))
    assert cache.get(KEY, own) is None, "all records count"


def test_lines_of_others_count_for_every_workload(tmp_path: Path) -> None:
    own = tmp_path / "records.jsonl"
    own.write_text('{"v":1, "env":"by hand"}\n')
    assert records_digest(own, ["{}"]) != records_digest(tmp_path / "none.jsonl", ["{}"])


@pytest.mark.parametrize("damage", ["cut", "flip", "no library", "other entry", "no JSON"])
def test_a_damaged_entry_is_none(cache: ModuleCache, tmp_path: Path, damage: str) -> None:
    own = tmp_path / "records.jsonl"
    cache.put(KEY, module(), own, ())
    (library,) = cache.folder.glob("*.so")
    entry = cache.folder / f"{KEY}.json"
    content = library.read_bytes()
    if damage == "cut":
        library.write_bytes(content[:-7])
    elif damage == "flip":
        library.write_bytes(content[:2] + bytes([content[2] ^ 1]) + content[3:])
    elif damage == "no library":
        library.unlink()
    else:
        entry.write_text('{"about": {}}' if damage == "other entry" else "{")
    assert cache.get(KEY, own) is None
    cache.put(KEY, module(b"anew!"), own, ())
    assert body_of(cache.get(KEY, own)) == b"anew!"


def test_a_folder_of_everyone_is_refused(cache: ModuleCache, tmp_path: Path) -> None:
    cache.put(KEY, module(), tmp_path / "records.jsonl", ())
    cache.folder.chmod(0o777)
    with pytest.raises(errors.CacheUntrusted, match="CONVOY_CACHE_DIR"):
        cache.get(KEY, tmp_path / "records.jsonl")


@pytest.mark.parametrize("call", ["fdopen", "replace", "unlink"])
@pytest.mark.parametrize("number", range(4))
def test_killed_at_any_step_the_next_build_is_right(
    cache: ModuleCache, tmp_path: Path, call: str, number: int
) -> None:
    own = tmp_path / "records.jsonl"
    child = os.fork()
    if child == 0:
        left = [number]
        original = getattr(os, call)

        def dies(*args: object, **options: object) -> object:
            if not left[0]:
                os._exit(9)
            left[0] -= 1
            return original(*args, **options)

        setattr(os, call, dies)
        cache.put(KEY, module(), own, ())
        os._exit(0)
    os.waitpid(child, 0)
    assert body_of(cache.get(KEY, own)) in (None, b"first")
    cache.put(KEY, module(b"again"), own, ())
    assert body_of(cache.get(KEY, own)) == b"again"


def test_a_full_disk_costs_the_entry_alone(cache: ModuleCache, tmp_path: Path) -> None:
    own = tmp_path / "records.jsonl"
    cache.put(KEY, module(), own, ())
    child = os.fork()
    if child == 0:
        import resource
        import signal
        import sys

        sys.dont_write_bytecode = True  # what is written in part would be kept
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        cache.put("1" * 64, module(b"large" * 2000), own, ())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the build goes on"
    assert cache.get("1" * 64, own) is None
    assert body_of(cache.get(KEY, own)) == b"first"
    assert not [path.name for path in cache.folder.iterdir() if path.name.startswith(".")]


def test_many_builds_at_once(cache: ModuleCache, tmp_path: Path) -> None:
    own = tmp_path / "records.jsonl"
    wrong: list[bytes | None] = []

    def build(number: int) -> None:
        for _ in range(20):
            cache.put(KEY, module(b"%05d" % number), own, ())
            found = body_of(cache.get(KEY, own))
            if found is not None and not found.isdigit():
                wrong.append(found)

    threads = [threading.Thread(target=build, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    cache.put(KEY, module(), own, ())
    assert body_of(cache.get(KEY, own)) == b"first"
    assert len(list(cache.folder.glob("*.so"))) <= 5, "one of each builder at most"


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    own = tmp_path / "records.jsonl"
    cache = ModuleCache(tmp_path / "modules", most_bytes=4000)
    for number in range(3):
        cache.put(str(number) * 64, module(bytes([65 + number]) * 1000), own, ())
        os.utime(cache.folder / f"{str(number) * 64}.json", (number, number))
    assert cache.get("0" * 64, own) is not None, "used just now"
    cache.put("3" * 64, module(b"D" * 1000), own, ())
    found = [cache.get(str(number) * 64, own) is not None for number in range(4)]
    assert found == [True, False, False, True] or found == [True, False, True, True]
    assert sum(path.stat().st_size for path in cache.folder.iterdir()) <= 4000
    cache.put("4" * 64, module(b"E" * 5000), own, ())
    assert cache.get("4" * 64, own) is None, "larger than the whole cache"


def test_no_bytes_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_MODULE_CACHE_BYTES", "0")
    cache = ModuleCache(tmp_path / "modules")
    cache.put(KEY, module(), tmp_path / "records.jsonl", ())
    assert not cache.folder.exists()
    monkeypatch.setenv("CONVOY_MODULE_CACHE_BYTES", "much")
    with pytest.raises(errors.InvalidOption, match="bytes"):
        ModuleCache(tmp_path / "modules")
