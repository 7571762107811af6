"""Every finding of ``convoy doctor``, on a simulated machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from convoy import paths
from convoy.backends.kernels import shipped
from convoy.cli.doctor import check, cuda, probes, software, toolchain
from convoy.cli.doctor.check import Check, ProbeDied
from convoy.errors import LibraryMissing
from convoy.ir.device import Device
from convoy.measure import gpu as gpus

H200 = Device("NVIDIA H200", 90, 132, 232448, 60 << 20, 150 << 30)
Patch = pytest.MonkeyPatch


def _answers(monkeypatch: Patch, module: Any, *answers: Any) -> None:
    """Let the next questions to a process of its own be answered by these, in order."""
    queue = list(answers)

    def ask(code: str, *arguments: str) -> Any:
        answer = queue.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "ask", ask)


def _wheels(monkeypatch: Patch, **versions: str) -> None:
    found = {f"nvidia-cudnn-{name}": version for name, version in versions.items()}
    monkeypatch.setattr(cuda, "version_of", lambda name: found.get(name, ""))


class TestGpu:
    def test_found(self, monkeypatch: Patch) -> None:
        monkeypatch.setattr(gpus, "find_gpus", lambda: ([H200], ""))
        found = cuda.gpu()
        assert found.status == "found"
        assert "sm_90, 132 SMs, 150 GiB" in found.detail

    def test_equal_ones_are_counted(self, monkeypatch: Patch) -> None:
        other = dataclasses.replace(H200, name="NVIDIA H100", sm_count=114)
        monkeypatch.setattr(gpus, "find_gpus", lambda: ([H200, H200, other, H200], ""))
        described = f"3 x {H200.name} (sm_90, 132 SMs, 150 GiB); NVIDIA H100 (sm_90, 114 SMs"
        assert cuda.gpu().detail.startswith(described)

    def test_none(self, monkeypatch: Patch) -> None:
        monkeypatch.setattr(gpus, "find_gpus", lambda: ([], "no driver"))
        assert cuda.gpu().status == "missing"
        assert cuda.gpu().detail == "no driver"

    def test_other_architecture(self, monkeypatch: Patch) -> None:
        old = dataclasses.replace(H200, name="Tesla T4", arch=75)
        monkeypatch.setattr(gpus, "find_gpus", lambda: ([old], ""))
        assert cuda.gpu().status == "problem"
        assert "sm_80 and sm_90" in cuda.gpu().detail

    @pytest.mark.parametrize(
        ("version", "newest", "status"),
        [
            ("580.95.05", "13.0", "found"),
            ("570.10", "12.8", "problem"),
            ("", "12.8", "problem"),
            ("", "13.0", "found"),
            ("", "", "missing"),
        ],
    )
    def test_driver(self, monkeypatch: Patch, version: str, newest: str, status: str) -> None:
        monkeypatch.setattr(gpus, "driver_version", lambda: version)
        monkeypatch.setattr(gpus, "cuda_driver_version", lambda: newest)
        found = cuda.driver()
        assert found.status == status
        assert bool(found.remedy) == (status != "found")


class TestLibraries:
    def test_cudart(self, monkeypatch: Patch) -> None:
        _answers(monkeypatch, cuda, 13000)
        assert cuda.cudart().detail.startswith("13.0 at ")
        _answers(monkeypatch, cuda, ProbeDied("cannot open"))
        found = cuda.cudart()
        assert found.status == "missing"
        assert "nvidia-cuda-runtime" in found.remedy

    def test_cudnn_found(self, monkeypatch: Patch) -> None:
        _wheels(monkeypatch, cu13="9.19.1.2")
        _answers(monkeypatch, cuda, 91901, 13000, 131000)
        found = cuda.cudnn()
        assert found.status == "found"
        assert "9.19.1 for CUDA 13" in found.detail

    def test_cudnn_without_cublaslt(self, monkeypatch: Patch) -> None:
        _wheels(monkeypatch, cu12="9.19.1.2")
        _answers(monkeypatch, cuda, 91901, 12000, ProbeDied("libcublasLt.so.12: not found"))
        found = cuda.cudnn()
        assert found.status == "problem"
        assert found.remedy == 'pip install "nvidia-cublas-cu12"'

    def test_both_cudnn_wheels(self, monkeypatch: Patch) -> None:
        _wheels(monkeypatch, cu12="9.19.1.2", cu13="9.19.1.2")
        found = cuda.cudnn()
        assert found.status == "problem"
        assert "overwrite each other" in found.detail
        assert found.remedy.startswith("pip uninstall -y nvidia-cudnn-cu12 nvidia-cudnn-cu13")

    def test_cudnn_that_kills_its_process(self, monkeypatch: Patch) -> None:
        _wheels(monkeypatch)
        monkeypatch.setattr(cuda, "_LOAD", "import os; os.abort()")
        found = cuda.cudnn()
        assert found.status == "missing"
        assert "SIGABRT" in found.detail
        assert found.remedy == paths.install_command("cudnn")

    def test_old_cudnn(self, monkeypatch: Patch) -> None:
        _wheels(monkeypatch)
        _answers(monkeypatch, cuda, 8907, 11080)
        assert cuda.cudnn().status == "problem"

    def test_cublaslt_follows_cudnn(self, monkeypatch: Patch) -> None:
        _wheels(monkeypatch, cu12="9.19")
        _answers(monkeypatch, cuda, ProbeDied("no"))
        assert "cu12" in cuda.cublaslt().remedy
        _wheels(monkeypatch)
        _answers(monkeypatch, cuda, 130400)
        assert cuda.cublaslt().detail.startswith("13.4.0 at ")

    def test_nvrtc(self, monkeypatch: Patch) -> None:
        monkeypatch.setattr(gpus, "cuda_driver_version", lambda: "13.0")
        monkeypatch.setattr(cuda, "_has_cuda_bindings", lambda: True)
        _answers(monkeypatch, cuda, "13.5")
        assert cuda.nvrtc().status == "found"
        _answers(monkeypatch, cuda, "13.5")
        assert "newer than the driver" in cuda.nvrtc().detail
        monkeypatch.setattr(cuda, "_has_cuda_bindings", lambda: False)
        _answers(monkeypatch, cuda, "13.0")
        assert cuda.nvrtc().status == "problem"
        _answers(monkeypatch, cuda, ProbeDied("not found"))
        assert cuda.nvrtc().status == "missing"


class TestToolchain:
    def test_cxx(self, tmp_path: Path, monkeypatch: Patch) -> None:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert toolchain.cxx().status == "missing"
        _script(tmp_path / "g++", "exit 1")
        assert toolchain.cxx().status == "problem"
        _script(tmp_path / "g++", "echo 'g++ 12.2'")
        assert toolchain.cxx().detail.startswith("g++ 12.2 at ")

    def test_nvcc_missing(self, monkeypatch: Patch) -> None:
        def missing() -> None:
            raise LibraryMissing("no nvcc 13 (found: none)", "nvcc")

        monkeypatch.setattr(toolchain, "find_toolkit", missing)
        assert toolchain.nvcc().status == "missing"
        assert toolchain.nvcc().remedy == paths.install_command("nvcc")

    def test_nvcc_is_asked_to_compile(self, tmp_path: Path, monkeypatch: Patch) -> None:
        nvcc = _script(tmp_path / "nvcc", "echo 'a.cu(1): fatal error: nv/target: No such file'")
        found = SimpleNamespace(nvcc=nvcc, version="release 13.0", includes=(tmp_path,))
        monkeypatch.setattr(toolchain, "find_toolkit", lambda: found)
        assert toolchain.nvcc().status == "found"
        with open(nvcc, "a") as stream:
            stream.write("exit 2\n")
        assert toolchain.nvcc().status == "problem"
        assert "nv/target" in toolchain.nvcc().detail

    def test_shipped_kernels(self, monkeypatch: Patch) -> None:
        found = toolchain.shipped_kernels()
        assert found.status == "found"
        assert "(0 stale)" in found.detail
        for archive in shipped.archives():
            assert f"{len(archive.entries)} for {archive.path.stem}" in found.detail
        first = shipped.archives()[0]
        changed = dict(enumerate(first.entries.values()))
        old = dataclasses.replace(first, entries={**first.entries, "other source": changed[0]})
        monkeypatch.setattr(shipped, "archives", lambda: (old,))
        assert toolchain.shipped_kernels().status == "problem"
        assert "(1 stale)" in toolchain.shipped_kernels().detail
        assert changed[0]["name"] in toolchain.shipped_kernels().detail
        monkeypatch.setattr(shipped, "archives", lambda: ())
        assert toolchain.shipped_kernels().status == "missing"

    def test_cutlass(self, tmp_path: Path, monkeypatch: Patch) -> None:
        spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: spec)
        assert toolchain.cutlass().status == "missing"
        include = tmp_path / "source" / "include" / "cutlass"
        include.mkdir(parents=True)
        version = "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR {}\n#define CUTLASS_PATCH 0\n"
        (include / "version.h").write_text(version.format(1))
        assert "written for 4.2.0" in toolchain.cutlass().detail
        (include / "version.h").write_text(version.format(2))
        assert ".inl files are missing" in toolchain.cutlass().detail
        (include / "sm90_gmma_builder.inl").touch()
        assert toolchain.cutlass().status == "found"
        monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
        assert toolchain.cutlass().status == "missing"


def _script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


class TestSoftware:
    def test_tvm(self, monkeypatch: Patch) -> None:
        _answers(monkeypatch, software, "0.27.0.post1")
        assert software.tvm().status == "found"
        _answers(monkeypatch, software, "0.18.0")
        assert software.tvm().status == "problem"
        _answers(monkeypatch, software, ProbeDied("ModuleNotFoundError: No module named 'tvm'"))
        assert software.tvm().status == "missing"
        _answers(monkeypatch, software, ProbeDied("the process was killed by SIGSEGV"))
        assert software.tvm().status == "problem"

    @pytest.mark.parametrize(
        ("reason", "remedy"),
        [
            ("libcudart.so.13: cannot open", "nvidia-cuda-runtime"),
            ("libcuda.so.1: cannot open", "driver"),
            ("undefined symbol", "detail"),
        ],
    )
    def test_tvm_without_cuda_says_why(self, monkeypatch: Patch, reason: str, remedy: str) -> None:
        _answers(monkeypatch, software, reason)
        found = software.tvm_cuda()
        assert (found.status, found.detail) == ("missing", reason)
        assert remedy in found.remedy

    def test_tvm_with_cuda(self, monkeypatch: Patch) -> None:
        _answers(monkeypatch, software, "")
        assert software.tvm_cuda().status == "found"

    def test_runtime_library(self, tmp_path: Path, monkeypatch: Patch) -> None:
        monkeypatch.setenv("CONVOY_RUNTIME_LIBRARY", str(tmp_path / "none.so"))
        assert software.runtime_library().status == "missing"
        (tmp_path / "none.so").write_text("not a library")
        found = software.runtime_library()
        assert found.status == "problem"
        assert "none.so" in found.detail

    def test_records(self, tmp_path: Path, monkeypatch: Patch) -> None:
        monkeypatch.setattr(paths, "records_dir", lambda: tmp_path)
        monkeypatch.setenv("CONVOY_DATA_DIR", str(tmp_path / "none"))
        assert software.records().status == "missing"
        assert software.records().need == "advice"
        header = json.dumps({"v": 1, "id": "x", "environment": {"gpu": "NVIDIA H200"}})
        line = {"v": 1, "env": "x", "time": "2026", "measurement": {"kernel_us": 1.0}}
        line["candidate"] = {"backend": "cudnn", "kernel": "eng0"}
        sizes = dict.fromkeys(["n", "h", "w", "c", "k", "r", "s"], 1)
        line["workload"] = {"op": "fprop", **sizes}
        (tmp_path / "r.jsonl").write_text(f"{header}\n{json.dumps(line)}\n")
        assert software.records().detail == "NVIDIA H200 1 in 1 files"
        (tmp_path / "r.jsonl").write_text(f"{header}\n{json.dumps(line)}\ndamaged\n")
        assert software.records().remedy == f"convoy records prune {tmp_path / 'r.jsonl'}"
        (tmp_path / "s.jsonl").write_text("something else\nentirely\n")
        assert software.records().status == "problem"
        assert "s.jsonl" in software.records().detail

    def test_cache(self, tmp_path: Path, monkeypatch: Patch) -> None:
        monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setattr(
            software.shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 10**9)
        )
        assert software.cache().detail.endswith("5.0 GB free")
        monkeypatch.setattr(software.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        assert software.cache().status == "problem"
        (tmp_path / "file").touch()
        monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "file" / "cache"))
        assert software.cache().status == "problem"
        assert "CONVOY_CACHE_DIR" in software.cache().remedy


class TestProcesses:
    def test_answer(self) -> None:
        assert check.ask("import json; print('noise'); print(json.dumps([1]))") == [1]

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            ("import os; os.abort()", "SIGABRT"),
            ("raise ValueError('no such thing')", "no such thing"),
            ("import sys; sys.exit(3)", "exit code 3"),
            ("pass", "no answer"),
            ("print('not json')", "no answer"),
        ],
    )
    def test_death(self, code: str, words: str) -> None:
        with pytest.raises(ProbeDied, match=words):
            check.ask(code)

    def test_hang(self) -> None:
        with pytest.raises(ProbeDied, match="within"):
            check.ask("import time; time.sleep(60)", timeout_s=0.2)


def test_a_failing_probe_does_not_take_the_others_with_it() -> None:
    def bad_probe() -> Check:
        raise RuntimeError("boom")

    checks = probes.examine([bad_probe, software.python])
    assert [c.status for c in checks] == ["problem", "found"]
    assert checks[0].name == "bad probe"
    assert "boom" in checks[0].detail


@pytest.mark.parametrize(
    ("statuses", "cpu", "gpu"),
    [
        ({"cpu": "found", "gpu": "found", "advice": "missing"}, True, True),
        ({"cpu": "found", "gpu": "missing"}, True, False),
        ({"cpu": "problem", "gpu": "found"}, False, False),
    ],
)
def test_ready(statuses: dict[Any, Any], cpu: bool, gpu: bool) -> None:
    checks = [Check(need, status, "", need=need) for need, status in statuses.items()]
    assert probes.ready(checks) is cpu
    assert probes.ready(checks, gpu=True) is gpu


def test_on_this_machine_nothing_fails_unexpectedly() -> None:
    checks = probes.examine()
    assert [c.name for c in checks if "probe failed" in c.detail] == []
    for found in checks:
        assert found.detail
        assert found.status == "found" or found.remedy, found
