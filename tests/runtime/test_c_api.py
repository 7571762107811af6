"""The C API: what convoy.h says of loading, running, errors and threads, on the CPU."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convoy
from convoy import paths, relay
from convoy.relay.convert import to_relax

ROOT = Path(__file__).parents[2]
RELAY = """#[version = "0.0.5"]
def @main(%data: Tensor[(2, 3, 8, 8), float32], %scale: Tensor[(1), float32],
          %w: Tensor[(4, 3, 3, 3), float32]) {
  %0 = nn.conv2d(multiply(%data, %scale), %w, padding=[1, 1, 1, 1], channels=4,
                 kernel_size=[3, 3]);
  (nn.relu(%0), mean(%0, axis=[2, 3]))
}
"""
OK, INVALID_ARGUMENT, CORRUPT_FILE = 0, 1, 2


class Info(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("bytes", ctypes.c_size_t),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def api() -> Any:
    from convoy.runtime import load_runtime

    load_runtime()
    library = ctypes.CDLL(str(paths.runtime_library()))
    for name in ("convoy_last_error", "convoy_model_target"):
        getattr(library, name).restype = ctypes.c_char_p
        getattr(library, name).argtypes = [ctypes.c_void_p] * (name != "convoy_last_error")
    handle, size = ctypes.c_void_p, ctypes.c_size_t
    arguments = {
        "model_num_inputs": [handle], "model_num_outputs": [handle], "model_free": [handle],
        "session_free": [handle], "session_run": [handle, handle],
        "model_load_memory": [handle, size, handle], "model_load": [ctypes.c_char_p, handle],
        "session_set_input": [handle, ctypes.c_int32, handle, size, handle],
        "session_bind_input": [handle, ctypes.c_int32, handle, size],
        "session_get_output": [handle, ctypes.c_int32, handle, size, handle],
        "session_output_data": [handle, ctypes.c_int32, handle],
        "session_create": [handle, ctypes.c_int32, handle],
        "model_input": [handle, ctypes.c_int32, handle],
        "model_output": [handle, ctypes.c_int32, handle],
        "model_find_input": [handle, ctypes.c_char_p],
    }  # fmt: skip
    for name, types in arguments.items():
        getattr(library, f"convoy_{name}").argtypes = types
    return library


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deployed") / "net.so"
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype("float32")
    built = convoy.build(to_relax(relay.parse(RELAY), {"w": weights}), "llvm")
    built.export_library(path)
    return path


def inputs(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(2, 3, 8, 8)).astype("float32"), np.full(1, 2.0, "float32")]


class Model:
    """A model and a session of it through the C API."""

    def __init__(self, api: Any, path: Path) -> None:
        self.api, self.model, self.session = api, ctypes.c_void_p(), ctypes.c_void_p()
        self.ok(api.convoy_model_load(str(path).encode(), ctypes.byref(self.model)))
        self.ok(api.convoy_session_create(self.model, 0, ctypes.byref(self.session)))

    def ok(self, status: int) -> None:
        assert status == OK, self.api.convoy_last_error().decode()

    def set(self, arrays: list[np.ndarray]) -> None:
        for i, array in enumerate(arrays):
            data = ctypes.c_void_p(array.ctypes.data)
            self.ok(self.api.convoy_session_set_input(self.session, i, data, array.nbytes, None))

    def outputs(self) -> list[np.ndarray]:
        found = []
        for i in range(self.api.convoy_model_num_outputs(self.model)):
            info = Info()
            self.ok(self.api.convoy_model_output(self.model, i, ctypes.byref(info)))
            array = np.empty(info.shape[: info.ndim], info.dtype.decode())
            data = ctypes.c_void_p(array.ctypes.data)
            self.ok(self.api.convoy_session_get_output(self.session, i, data, info.bytes, None))
            found.append(array)
        return found

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        self.set(arrays)
        self.ok(self.api.convoy_session_run(self.session, None))
        return self.outputs()


@pytest.fixture
def model(api: Any, module: Path) -> Model:
    return Model(api, module)


def test_inputs_and_outputs_are_described(model: Model) -> None:
    api, info = model.api, Info()
    assert api.convoy_model_target(model.model) == b"llvm" and api.convoy_api_version() == 1
    assert api.convoy_model_num_inputs(model.model) == 2
    model.ok(api.convoy_model_input(model.model, 0, ctypes.byref(info)))
    assert (info.name, info.dtype, info.bytes) == (b"data", b"float32", 4 * 2 * 3 * 8 * 8)
    assert (info.shape[: info.ndim], info.code, info.bits, info.lanes) == ([2, 3, 8, 8], 2, 32, 1)
    assert api.convoy_model_find_input(model.model, b"scale") == 1
    assert api.convoy_model_find_input(model.model, b"w") == -1


def test_results_are_those_of_python(model: Model, module: Path) -> None:
    session = convoy.load(module).session()
    for seed in range(3):
        for mine, theirs in zip(model.run(inputs(seed)), session(*inputs(seed)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_bound_memory_is_read_in_place(model: Model) -> None:
    first = model.run(inputs(1))
    raw = np.zeros(4 * 384 + 256, "uint8")
    start = -raw.ctypes.data % 256
    bound = raw[start : start + 4 * 384].view("float32").reshape(2, 3, 8, 8)
    bound[:] = inputs(1)[0]
    data = ctypes.c_void_p(bound.ctypes.data)
    model.ok(model.api.convoy_session_bind_input(model.session, 0, data, bound.nbytes))
    model.ok(model.api.convoy_session_run(model.session, None))
    np.testing.assert_array_equal(model.outputs()[0], first[0])
    bound[:] = inputs(2)[0]
    model.ok(model.api.convoy_session_run(model.session, None))
    np.testing.assert_array_equal(model.outputs()[0], Model.run(model, inputs(2))[0])
    where = ctypes.c_void_p()
    model.ok(model.api.convoy_session_output_data(model.session, 0, ctypes.byref(where)))
    assert where.value
    crooked = ctypes.c_void_p(bound.ctypes.data + 4)
    status = model.api.convoy_session_bind_input(model.session, 0, crooked, bound.nbytes)
    assert status == INVALID_ARGUMENT and b"aligned to 256" in model.api.convoy_last_error()


def test_from_memory_that_is_gone_afterwards(api: Any, module: Path) -> None:
    content = ctypes.create_string_buffer(module.read_bytes())
    size = len(content) - 1
    model = Model.__new__(Model)
    model.api, model.model, model.session = api, ctypes.c_void_p(), ctypes.c_void_p()
    model.ok(api.convoy_model_load_memory(content, size, ctypes.byref(model.model)))
    ctypes.memset(content, 0, size)
    model.ok(api.convoy_session_create(model.model, 0, ctypes.byref(model.session)))
    expected = convoy.load(module).session()(*inputs(4))
    np.testing.assert_array_equal(model.run(inputs(4))[0], expected[0])


def test_damaged_files_are_refused(api: Any, module: Path, tmp_path: Path) -> None:
    whole, found = module.read_bytes(), ctypes.c_void_p()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    damaged = {
        "cut": (whole[: len(whole) // 2], b"without a seal"),
        "short": (b"x", b"without a seal"),
        "empty": (b"", b"without a seal"),
        "flipped": (bytes(flipped), b"differ from what was sealed"),
        "longer": (b"\0" + whole, b"differ from what was sealed"),
    }
    for name, (content, message) in damaged.items():
        (tmp_path / name).write_bytes(content)
        status = api.convoy_model_load(str(tmp_path / name).encode(), ctypes.byref(found))
        assert (status, found.value) == (CORRUPT_FILE, None), name
        assert message in api.convoy_last_error(), name
    status = api.convoy_model_load(b"/nowhere/net.so", ctypes.byref(found))
    assert status == CORRUPT_FILE and b"/nowhere/net.so" in api.convoy_last_error()


def test_mistakes_have_a_status_and_a_text(model: Model) -> None:
    api, session, data = model.api, model.session, ctypes.create_string_buffer(1536)
    calls = {
        b"an output before any run": lambda: api.convoy_session_output_data(
            session, 0, ctypes.byref(ctypes.c_void_p())
        ),
        b"input 2 of 2": lambda: api.convoy_session_set_input(session, 2, data, 4, None),
        b"input -1 of 2": lambda: api.convoy_session_set_input(session, -1, data, 4, None),
        b"4 bytes for input 'data', which has 1536": lambda: api.convoy_session_set_input(
            session, 0, data, 4, None
        ),
        b"a null pointer for the data": lambda: api.convoy_session_set_input(
            session, 0, None, 1536, None
        ),
        b"a null pointer for the session": lambda: api.convoy_session_run(None, None),
        b"a null pointer for the path": lambda: api.convoy_model_load(
            None, ctypes.byref(ctypes.c_void_p())
        ),
        b"a stream for a module that runs on the CPU": lambda: api.convoy_session_run(session, 8),
        b"device 1 for the CPU": lambda: api.convoy_session_create(
            model.model, 1, ctypes.byref(ctypes.c_void_p())
        ),
    }
    for message, call in calls.items():
        assert call() == INVALID_ARGUMENT
        assert message in api.convoy_last_error()
    model.run(inputs(0))
    assert api.convoy_last_error() == b"", "a call that succeeds clears the text"


def test_sessions_outlive_their_model_and_threads_have_their_own(api: Any, module: Path) -> None:
    shared = Model(api, module)
    expected = [convoy.load(module).session()(*inputs(i))[0] for i in range(4)]
    results: dict[int, np.ndarray] = {}

    def work(i: int) -> None:
        mine = Model.__new__(Model)
        mine.api, mine.model, mine.session = api, shared.model, ctypes.c_void_p()
        mine.ok(api.convoy_session_create(shared.model, 0, ctypes.byref(mine.session)))
        api.convoy_session_run(None, None)
        assert b"null pointer" in api.convoy_last_error()
        for _ in range(5):
            results[i] = mine.run(inputs(i))[0]
        api.convoy_session_free(mine.session)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, array in enumerate(expected):
        np.testing.assert_array_equal(results[i], array)
    outputs = api.convoy_model_num_outputs(shared.model)
    assert outputs == 2
    api.convoy_model_free(shared.model)
    shared.ok(api.convoy_session_run(shared.session, None))
    api.convoy_session_free(shared.session)
    api.convoy_model_free(None)


def test_example_in_cpp_runs_without_python(module: Path, tmp_path: Path) -> None:
    config = [sys.executable, "-m", "convoy", "config"]
    flags = subprocess.run([*config, "--cflags", "--libs"], capture_output=True, text=True)
    assert flags.returncode == 0, flags.stderr
    program = tmp_path / "classify"
    source = ROOT / "examples" / "cpp" / "classify.cc"
    command = ["g++", "-std=c++17", "-Wall", "-Werror", source, *flags.stdout.split()]
    subprocess.run([*command, "-o", program], check=True)
    x, scale = inputs(7)
    x.tofile(tmp_path / "x.bin")
    scale.tofile(tmp_path / "scale.bin")
    clean = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR")}
    ran = subprocess.run(
        [program, module, tmp_path / "x.bin", tmp_path / "scale.bin"],
        capture_output=True, text=True, env=clean,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0] == "input data: float32 of 2x3x8x8"
    expected = convoy.load(module).session()(x, scale)
    for line, array in zip(lines[2:], expected, strict=True):
        shown = [float(text) for text in line.rsplit(":", 1)[1].split()]
        np.testing.assert_allclose(shown, array.ravel()[: len(shown)], rtol=1e-4, atol=1e-5)
    missing = subprocess.run([program, "/nowhere.so"], capture_output=True, text=True, env=clean)
    assert missing.returncode == CORRUPT_FILE and "/nowhere.so" in missing.stderr


def test_header_is_c(tmp_path: Path) -> None:
    source = tmp_path / "main.c"
    source.write_text("#include <convoy/convoy.h>\nint main(void) { return CONVOY_OK; }\n")
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    subprocess.run(["gcc", *flags, f"-I{paths.include_dir()}", source], check=True)
