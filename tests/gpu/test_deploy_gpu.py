"""The C API and ``convoy bench`` on the GPU."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import convoy
from convoy.cli.main import app
from convoy.relay.convert import to_relax
from convoy.relay.testing import squeezenet

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]

#: Runs the network five times on a stream of its own: a call, a capture, replays, and a captured
#: call inside a graph of the caller.
PROGRAM = r"""
#include <convoy/convoy.h>
#include <cuda_runtime_api.h>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>
void Check(int status) {
  if (status) { std::fprintf(stderr, "%s\n", convoy_last_error()); std::exit(1); }
}
int main(int, char** argv) {
  ConvoyModel* model; ConvoySession* session; ConvoyTensorInfo in, out;
  Check(convoy_model_load(argv[1], &model));
  Check(convoy_session_create(model, 0, &session));
  Check(convoy_model_input(model, 0, &in));
  Check(convoy_model_output(model, 0, &out));
  std::ifstream file(argv[2], std::ios::binary);
  std::vector<char> x((std::istreambuf_iterator<char>(file)), {}), y(out.bytes);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  std::ofstream results(argv[3], std::ios::binary);
  auto write = [&] {
    Check(convoy_session_get_output(session, 0, y.data(), y.size(), stream));
    results.write(y.data(), y.size());
  };
  Check(convoy_session_set_input(session, 0, x.data(), x.size(), stream));
  for (int i = 0; i < 3; ++i) { Check(convoy_session_run(session, stream)); write(); }
  void* bound;
  cudaMalloc(&bound, x.size());
  cudaMemcpy(bound, x.data(), x.size(), cudaMemcpyHostToDevice);
  Check(convoy_session_bind_input(session, 0, bound, x.size()));
  Check(convoy_session_run(session, stream)); write();
  cudaGraph_t graph; cudaGraphExec_t exec;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  Check(convoy_session_run(session, stream));
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphLaunch(exec, stream); write();
  if (cudaGetLastError() != cudaSuccess) return 2;
  cudaGraphExecDestroy(exec);
  convoy_session_free(session);
  convoy_model_free(model);
  return 0;
}
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deployed") / "net.so"
    mod, params = squeezenet.get_workload(batch_size=1, version="1.1")
    convoy.build(to_relax(mod, params), "cuda", measure=False).export_library(path)
    return path


def test_c_api_on_a_stream(module: Path, tmp_path: Path) -> None:
    config = [sys.executable, "-m", "convoy", "config", "--cflags", "--libs"]
    flags = subprocess.run(config, capture_output=True, text=True, check=True).stdout.split()
    from convoy.runtime.library import locations

    library = Path(locations()["cudart"] or "/usr/local/cuda/lib64/libcudart.so.13")
    (tmp_path / "main.cc").write_text(PROGRAM)
    program = tmp_path / "main"
    command = ["g++", "-std=c++17", tmp_path / "main.cc", *flags, library]
    toolkits = [
        library.parents[1],
        Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").parents[1],
    ]
    include = next(t / "include" for t in toolkits if (t / "include/crt/host_defines.h").exists())
    subprocess.run([*command, f"-I{include}", "-o", program], check=True)
    session = convoy.load(module).session()
    ((_, shape, dtype),) = session.input_info
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)
    x.tofile(tmp_path / "x.bin")
    (expected,) = session(x)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    ran = subprocess.run(
        [program, module, tmp_path / "x.bin", tmp_path / "y.bin"],
        capture_output=True, text=True, env=clean,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = np.fromfile(tmp_path / "y.bin", expected.dtype).reshape(5, *expected.shape)
    for y in found:
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-5)


def test_c_api_names_a_gpu_that_is_not_there(module: Path) -> None:
    from convoy import paths
    from convoy.runtime import load_runtime

    load_runtime()
    api = ctypes.CDLL(str(paths.runtime_library()))
    api.convoy_last_error.restype = ctypes.c_char_p
    model, session = ctypes.c_void_p(), ctypes.c_void_p()
    assert api.convoy_model_load(str(module).encode(), ctypes.byref(model)) == 0
    assert api.convoy_session_create(model, 99, ctypes.byref(session)) == 1
    assert b"device 99 of" in api.convoy_last_error()
    api.convoy_model_free(model)


def test_bench_on_a_gpu(module: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    done = CliRunner().invoke(app, ["bench", str(module), "--out", str(out), "--seconds", "0.5"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(out.read_text())["rows"]
    assert 0 < row["device_ms"] <= 1.2 * row["p50_ms"]
    assert row["memory_bytes"] is not None  # of the whole GPU: other processes may free as much
    assert row["layers"] and all(layer["measured"] for layer in row["layers"])
    assert "Where the time goes" in done.output
