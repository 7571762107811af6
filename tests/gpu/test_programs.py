"""The programs of this folder, as far as they go without a GPU, lest they rot between its uses, and
which kernels its tests compile."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from convoy.backends.kernels import shipped
from convoy.backends.kernels.cutlass import space
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.ir.activation import ACTIVATIONS
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.measure import reference

from ..helpers.few_kernels import few, kind
from ..helpers.random_graphs import random_module
from . import (
    random_builds,
    sanitize,
    soak,
    test_backward_gpu,
    test_cutlass_gpu,
    test_depthwise_gpu,
)  # fmt: skip


def test_random_builds_for_a_gpu_are_linked() -> None:
    """All steps up to the session, with the code generator of a GPU."""
    built = dict(random_builds.modules(random_module([5, 6])[0], "cuda"))
    assert [name.split(" ", 1)[1] for name in built] == [
        "streams", "streams captured", "streams", "streams captured"
    ]  # fmt: skip
    for name, module in built.items():
        assert module.meta.cuda_graph == name.endswith("captured")
        assert module.schedule is not None and name.startswith(str(module.schedule.streams))


def test_random_builds_run_by_emulation() -> None:
    assert list(random_builds.outcomes(range(2), "emulated")) == [(2, {}, {})]


def test_random_builds_name_what_is_wrong_and_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, owners = random_module([8, 9])
    last, runs = len(owners) - 1, random_builds.runs

    def wrong(mod, target):
        for name, run in runs(mod, target):
            yield name, lambda xs, run=run: [*run(xs)[:-1], run(xs)[-1] + 1e-2]

    monkeypatch.setattr(random_builds, "runs", wrong)
    ((count, found, failed),) = random_builds.outcomes([8, 9], "llvm")
    assert (count, list(found), failed) == (2, [9], {})
    assert len(found[9]) == random_builds.RUNS and f"result {last}: " in found[9][0]

    def refused(mod, target):
        if len(mod["main"].params) > 1 or "x0" in str(mod["main"].params[0]):
            raise ValueError("no module")
        yield from runs(mod, target)

    monkeypatch.setattr(random_builds, "runs", refused)
    assert [o[2] for o in random_builds.outcomes([8, 9, 10], "llvm")] == [
        {seed: "ValueError: no module"} for seed in (8, 9, 10)
    ]


def test_rounding_is_that_of_float16() -> None:
    """Of a network that makes much of it, whose float16 build has the same distance; and of one
    whose values are too large for float16."""
    for seed, low, high in ((5019, 0.02, 0.03), (4156, np.inf, np.inf)):
        mod, _ = random_module([seed])
        rng = np.random.default_rng(seed)
        xs = [rng.standard_normal(random_builds.shape(x)) for x in mod["main"].params]
        found = random_builds.rounding_of(mod, [xs], [random_builds.evaluate(mod, xs)])
        assert low <= found.max() <= high


def test_kernels_to_sanitize_are_chosen() -> None:
    """Of every family and direction; those that ship compiled are not compiled again."""
    kinds = {
        sanitize.kind_of(workload, candidate)
        for _, workload, candidate in sanitize.chosen(Device(), most=1)
    }
    for part in ("fprop", "dgrad", "wgrad", "split-K", "attention"):
        assert any(part in kind for kind in kinds), (part, kinds)


def test_networks_are_built_sanitized_and_soaked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert sanitize.build(tmp_path, ["one_pixel"]) == 0
    assert sanitize.networks(tmp_path) == 0
    monkeypatch.setattr(soak, "device_mib", lambda: 0.0)  # other tests run on the GPU
    monkeypatch.setattr(sys, "argv", ["soak.py", str(tmp_path), "--seconds", "1", "--threads", "2"])
    assert not soak.main(), capsys.readouterr().out
    (path,) = tmp_path.glob("*.npz")
    arrays = dict(np.load(path))
    np.savez(path, **{name: x + (name[0] == "y") for name, x in arrays.items()})
    assert sanitize.networks(tmp_path) == 1
    assert soak.main()


def test_torchvision_models_make_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    models = types.SimpleNamespace(tiny=lambda: torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 7, 8), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
    ))  # fmt: skip
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=models))
    from . import torchvision_models

    cells = torchvision_models.row("tiny", "cpu", torch.float32, None)
    assert cells[:3] == ("tiny", "1/1", "0") and float(cells[3]) < 1e-5 and cells[-1] == ""


def test_few_kernels_are_compiled_and_every_family_and_activation_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run():
        cases = [{"case": case} for case in test_cutlass_gpu.CASES]
        gradients = [{"workload": case.values[0]} for case in test_backward_gpu.cases()]
        found = test_backward_gpu.kernels(gradients, Device())
        backward = {kernel for kernel in found if isinstance(kernel, KernelConfig)}
        return test_cutlass_gpu.kernels(cases, Device()), backward

    forward, backward = run()
    compiled = [kernel for kernel in forward | backward if not shipped.has(kernel)]
    dear = [kernel for kernel in compiled if kernel.family.startswith("sm90")]
    assert len(dear) < 60  # of 40 CPU seconds each
    assert len(compiled) < 150
    monkeypatch.setenv("CONVOY_GPU_KERNELS", "all")
    for some, every in zip((forward, backward), run(), strict=True):
        assert some < every
        for field in ("scheduler", "iterator", "dtype", "out_dtype", "align", "affine_relu"):
            assert {kind(k, field) for k in some} == {kind(k, field) for k in every}, field
    variants = {(k.family[:4], k.activation, k.residual_last) for k in forward}
    for name in ACTIVATIONS[2:]:
        for arch in ("sm80", "sm90"):
            assert {(arch, name, False), (arch, name, True)} <= variants


def test_few_kernels_ship_first() -> None:
    every = list(space.kernels(test_cutlass_gpu.conv(), 90))
    ready = [kernel for kernel in every if shipped.has(kernel)]
    assert 4 < len(ready) < len(every)
    for most in (1, 4, len(ready), len(every)):
        chosen = few(every, most)
        assert {kind(k) for k in chosen} == {kind(k) for k in every}
        assert len(chosen) == max(most, len({kind(k) for k in every}))
        assert sum(map(shipped.has, chosen)) >= min(most, len(ready)) - 1
    assert set(ready) <= set(few(every, None))


@pytest.mark.parametrize("op", ["fprop", "dgrad", "wgrad"])
def test_the_references_of_the_gpu_tests(op: str) -> None:
    """PyTorch's, by differentiation for gradients, are Convoy's own: uneven padding, groups."""
    torch = pytest.importorskip("torch")
    workload = Workload(
        op, 2, 7, 9, 4, 4, 3, 2, stride=(2, 1), padding=(0, 1, 2, 1), dilation=(1, 2), groups=4
    )
    rng = np.random.default_rng(0)
    *given, (result, _, _) = workload.operand_shapes()
    arrays = {name: rng.standard_normal(shape) for name, shape, _ in given}
    (want,) = reference.full(workload, arrays)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    got = test_depthwise_gpu.reference(torch, workload, tensors)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=result)
