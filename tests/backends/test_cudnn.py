"""The cuDNN backend without a GPU: rules, and with the wheel installed real engines and plans."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.backends import cudnn as module
from convoy.backends.cudnn import CudnnBackend, cudnn_version
from convoy.backends.cudnn_device import device_properties
from convoy.backends.cudnn_engines import Config, Engines
from convoy.errors import ConvoyError, InvalidOption
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.candidate import Candidate, Decline, make_config
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.runtime import create_module
from convoy.runtime.library import call_json, function

H200 = Device()
A100 = Device("NVIDIA A100-SXM4-80GB", 80, 108, 166912, 41943040, 85899345920)
RESIDUAL_RELU = Epilogue(residual=True, bias=True, activation="relu")


@functools.cache
def why_no_cudnn() -> str:
    version = cudnn_version()
    if not version:
        return "cuDNN is not installed"
    try:
        properties = json.dumps(device_properties(H200))
        call_json("cudnn.enumerate", conv().to_json(), {"deviceprop": properties, "modes": ["A"]})
    except ConvoyError as err:
        return f"cuDNN {version} does not plan without a GPU: {err}"
    return ""


@pytest.fixture(scope="module")
def cudnn() -> None:
    if reason := why_no_cudnn():
        pytest.skip(reason)


needs_cudnn = pytest.mark.usefixtures("cudnn")


def conv(op: str = "fprop", **changes: object) -> Workload:
    fields: dict = {"op": op, "n": 8, "h": 14, "w": 14, "c": 64, "k": 128, "r": 3, "s": 3}
    fields |= {"padding": (1, 1, 1, 1), **changes}
    return Workload(**fields)


def propose(workload: Workload, device: Device = H200, **options: int) -> list[Candidate]:
    answer = CudnnBackend(**options).propose(workload, device)
    assert not isinstance(answer, Decline), answer
    return list(answer)


@pytest.mark.parametrize(
    ("workload", "word"),
    [
        (conv(groups=64, k=64, epilogue=Epilogue(bias=True)), "depthwise"),
        (conv(epilogue=Epilogue(bias=True, affine_relu=True)), "affine_relu"),
        (conv("dgrad", epilogue=Epilogue(activation="relu")), "dgrad"),
        (conv("wgrad", epilogue=Epilogue(bias=True)), "wgrad"),
        (conv(acc_dtype="float16"), "acc_dtype"),
    ],
)
def test_declines_name_what_stands_in_the_way(workload: Workload, word: str) -> None:
    for answer in (
        CudnnBackend().accepts(workload, H200),
        CudnnBackend().propose(workload, H200),
    ):
        assert isinstance(answer, Decline)
        assert word in answer.reason and answer.remedy


def test_old_gpu_is_declined() -> None:
    decline = CudnnBackend().accepts(conv(), Device("GTX 1080", 61, 20))
    assert decline is not None and "6.1" in decline.reason


def test_negative_workspace_is_refused() -> None:
    with pytest.raises(InvalidOption):
        CudnnBackend(max_workspace=-1)


def test_device_description_follows_the_device() -> None:
    properties = device_properties(A100)
    assert properties["deviceVer"] == 800 and properties["multiProcessorCount"] == 108
    assert properties["deviceName"] == A100.name


@needs_cudnn
@pytest.mark.parametrize(
    ("workload", "fewest"),
    [
        (conv(), 20),
        (conv(epilogue=RESIDUAL_RELU), 20),
        (conv(epilogue=Epilogue(bias=True)), 20),
        (conv(epilogue=Epilogue(activation="relu")), 20),
        (conv(epilogue=Epilogue(residual=True, activation="relu")), 20),
        (conv(stride=(2, 2), padding=(0, 0, 1, 1)), 20),
        (conv(dilation=(2, 2), padding=(2, 2, 2, 2)), 20),
        (conv(c=3, k=64, r=7, s=7, stride=(2, 2)), 5),
        (conv(groups=32), 5),
        (conv(groups=64, k=64), 3),
        (conv("dgrad"), 20),
        (conv("dgrad", stride=(2, 2)), 20),
        (conv("wgrad"), 10),
        (conv(dtype="bfloat16", out_dtype="bfloat16"), 20),
        (conv(dtype="float32", out_dtype="float32", math="tf32"), 20),
        (conv(dtype="float32", out_dtype="float32"), 3),
        (conv("matmul", h=1, w=1, r=1, s=1, padding=(0,) * 4, epilogue=Epilogue(bias=True)), 10),
    ],
    ids=lambda value: value.key if isinstance(value, Workload) else str(value),
)
@pytest.mark.parametrize("device", [H200, A100], ids=["h200", "a100"])
def test_engines_and_their_plans(workload: Workload, fewest: int, device: Device) -> None:
    """Every proposed engine is rebuilt from its number and knobs, with the workspace announced."""
    candidates = propose(workload, device)
    assert len(candidates) >= (fewest if device is H200 else 1)
    assert len({candidate.kernel for candidate in candidates}) == len(candidates)
    target = {"deviceprop": json.dumps(device_properties(device))}
    for candidate in candidates:
        if "runtime_compilation" in candidate.notes:
            continue
        binary = CudnnBackend().build(workload, candidate, device)
        plan = call_json("cudnn.build_plan", binary.entry, target)
        assert "refusal" not in plan, (candidate.kernel, plan)
        assert plan["workspace"] == candidate.workspace
        restored = call_json("cudnn.build_plan", {**binary.entry, **plan}, target)
        assert restored.get("workspace") == plan["workspace"], restored


@needs_cudnn
def test_strict_float32_avoids_tensor_cores() -> None:
    strict = propose(conv(dtype="float32", out_dtype="float32"))
    loose = propose(conv(dtype="float32", out_dtype="float32", math="tf32"))
    assert all("tensor_core" not in candidate.notes for candidate in strict)
    assert any("tensor_core" in candidate.notes for candidate in loose)


@pytest.mark.parametrize(
    ("engine", "notes", "change", "reason"),
    [
        (8, ["runtime_compilation"], {}, "scalar units"),
        (8, ["runtime_compilation"], {"groups": 32}, ""),
        (8, ["runtime_compilation", "tensor_core"], {"math": "tf32"}, ""),
        (7, ["tensor_core"], {"math": "tf32"}, "truncates"),
        (11, [], {}, ""),
    ],
)
def test_engines_of_float32_that_are_left_out(
    engine: int, notes: list[str], change: dict[str, Any], reason: str
) -> None:
    config: Config = {"engine": engine, "knobs": [], "notes": notes, "workspace": 0}
    engines = Engines(conv(dtype="float32", out_dtype="float32", **change))
    engines.add(
        {
            "cudnn_version": 91900, "configs": [config], "dropped": [], "refusals": [],
            "can_compile": True,
        }
    )  # fmt: skip
    assert [reason in one for one in engines.reasons] == ([True] if reason else [])
    assert len(engines.candidates) == (not reason)


@needs_cudnn
def test_workspace_limit() -> None:
    workload = conv(dtype="float32", out_dtype="float32")
    assert max(candidate.workspace for candidate in propose(workload)) > 0
    assert all(candidate.workspace == 0 for candidate in propose(workload, max_workspace=0))


@needs_cudnn
def test_gradients_sum_in_float32() -> None:
    for candidate in propose(conv("wgrad")):
        assert "reduced_precision_reduction" not in candidate.notes


GRAPHS = {
    "none": "",
    "relu": "relu\n",
    "clip": "relu -1 to 6\n",
    "sigmoid": "sigmoid\n",
    "silu": "swish\n",
    "gelu": "gelu\n",
    "gelu_tanh": "gelu_tanh\n",
    "hardswish": "add 3\nrelu 0 to 6\nmultiply x\nmultiply 0.166667\n",
    "leaky_relu": "relu slope 0.25\n",
    "tanh": "tanh\n",
    "elu": "elu alpha 0.25\n",
    "mish": "softplus\ntanh\nmultiply x\n",
    "softplus": "softplus\n",
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_graph_of_an_epilogue(name: str) -> None:
    bounds = {"clip_min": -1.0, "clip_max": 6.0} if name == "clip" else {}
    epilogue = Epilogue(True, True, name, **bounds, alpha=0.25 if name in WITH_ALPHA else 0.0)
    describe = function("cudnn.epilogue")
    text = str(describe(json.dumps(conv(epilogue=epilogue).to_json())))
    assert text == f"add residual\nadd bias\n{GRAPHS[name]}"
    if name != "none":
        last = dataclasses.replace(epilogue, bias=False, residual_last=True)
        text = str(describe(json.dumps(conv(epilogue=last).to_json())))
        assert text == f"{GRAPHS[name]}add residual\n"


@needs_cudnn
@pytest.mark.parametrize("name", ["clip", "silu", "gelu", "hardswish", "mish", "leaky_relu"])
def test_without_a_driver_engines_for_activations_are_declined(name: str) -> None:
    """Not offered engine 0, so that the convolution goes to a fast engine without them."""
    epilogue = Epilogue(bias=True, activation=name, clip_max=6.0 if name == "clip" else 0.0)
    target = {"deviceprop": json.dumps(device_properties(H200))}
    answer = call_json("cudnn.enumerate", conv(epilogue=epilogue).to_json(), target)
    if answer["can_compile"]:
        pytest.skip("with NVIDIA's driver they are compiled")
    assert not answer["refusals"], "cuDNN takes the graph"
    decline = CudnnBackend().propose(conv(epilogue=epilogue), H200)
    assert isinstance(decline, Decline) and "driver" in decline.reason


@needs_cudnn
def test_entry_makes_a_module() -> None:
    candidate = propose(conv())[0]
    binary = CudnnBackend().build(conv(), candidate, H200)
    module = create_module([{**binary.entry, "symbol": "f"}], binary.blobs)
    assert module.implements_function("f")
    assert json.loads(module["convoy_spec"]())["device"]["arch"] == 90


@needs_cudnn
def test_engine_that_cannot_be_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded with a GPU, built into a module without NVIDIA's driver: the machine that loads it
    builds the plan. Any other refusal is an error."""
    config = make_config(engine=4, knobs=[[24, 21]], version=91900)
    notes = ("runtime_compilation", "tensor_core")
    recorded = Candidate("cudnn", "eng4_k24=21", config, workspace=64, notes=notes)
    workload = Workload("fprop", 8, 56, 56, 64, 256, 1, 1, epilogue=Epilogue(residual=True))
    answers = {"refusal": "CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING"}
    monkeypatch.setattr(module, "call_json", lambda *_: answers)
    entry = CudnnBackend().build(workload, recorded, Device()).entry
    assert "plan_json" not in entry
    assert (entry["engine"], entry["knobs"], entry["workspace"]) == (4, [[24, 21]], 64)
    answers["refusal"] = "CUDNN_STATUS_BAD_PARAM"
    with pytest.raises(ConvoyError, match="BAD_PARAM"):
        CudnnBackend().build(workload, recorded, Device())


def test_plans_that_are_compiled_are_prepared_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan is built once; one that cuDNN refuses costs its candidate alone."""
    asked = []

    def build_plan(name: str, entry: dict, options: dict) -> dict:
        asked.append((name, entry["engine"]))
        good = entry["engine"] != 2
        return {"plan_json": "{}", "workspace": 0} if good else {"refusal": "out of luck"}

    monkeypatch.setattr(module, "call_json", build_plan)
    candidates = [
        Candidate(
            "cudnn",
            f"eng{engine}",
            make_config(engine=engine, knobs=[], version=91900),
            notes=("runtime_compilation",) if engine else (),
        )
        for engine in range(4)
    ]
    backend = CudnnBackend()
    failed = backend.prepare([(conv(), c) for c in candidates], H200)
    assert list(failed) == [candidates[2]] and "out of luck" in str(failed[candidates[2]])
    assert backend.build(conv(), candidates[3], H200).entry["plan_json"] == "{}"
    assert sorted(asked) == [("cudnn.build_plan", engine) for engine in (1, 2, 3)]


@needs_cudnn
def test_many_workloads_are_proposed_as_one_is() -> None:
    workloads = [conv(c=c) for c in (8, 16, 64)] + [conv(acc_dtype="float16")]
    backend = CudnnBackend()
    expected = [backend.propose(workload, H200) for workload in workloads]
    assert backend.propose_all(workloads, H200) == expected


def test_candidates_survive_json() -> None:
    for candidate in propose(conv()):
        assert Candidate.from_json(json.loads(json.dumps(candidate.to_json()))) == candidate


@needs_cudnn
@settings(max_examples=20)
@given(data=st.data())
def test_any_workload_is_proposed_or_declined(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float16", "bfloat16", "float32"]))
    groups = data.draw(st.sampled_from([1, 1, 2, 8]))
    r, s = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    workload = conv(
        data.draw(st.sampled_from(["fprop", "dgrad", "wgrad"])),
        n=data.draw(st.integers(1, 3)),
        h=data.draw(st.integers(r, 40)),
        w=data.draw(st.integers(s, 40)),
        c=groups * data.draw(st.integers(1, 40)),
        k=groups * data.draw(st.integers(1, 40)),
        r=r,
        s=s,
        groups=groups,
        stride=(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))),
        padding=tuple(data.draw(st.integers(0, 3)) for _ in range(4)),
        dtype=dtype,
        out_dtype=dtype,
    )
    answer = CudnnBackend().propose(workload, H200)
    if isinstance(answer, Decline):
        assert answer.reason
    else:
        assert answer
        CudnnBackend().build(workload, answer[0], H200)


@pytest.mark.usefixtures("cudnn")
def test_neighbours_change_one_knob() -> None:
    """They are valid (a plan can be built), new, and differ from the candidate in one knob."""
    backend, device = CudnnBackend(), Device()
    workload = Workload("fprop", 8, 28, 28, 128, 128, 3, 3, padding=(1, 1, 1, 1))
    proposed = backend.propose(workload, device)
    first = proposed[0]
    found = backend.neighbours(workload, first, device)
    assert len(found) > 5
    for candidate in found:
        mine, its = dict(first.options()["knobs"]), dict(candidate.options()["knobs"])
        assert mine.keys() == its.keys()
        assert sum(mine[kind] != its[kind] for kind in mine) == 1
        assert candidate.options()["engine"] == first.options()["engine"]
    assert {c.key for c in found} - {c.key for c in proposed}
    entry = backend.build(workload, dataclasses.replace(found[0], notes=()), device).entry
    target = {"deviceprop": json.dumps(device_properties(device))}
    assert call_json("cudnn.build_plan", entry, target)["workspace"] == found[0].workspace
    assert first.key not in {c.key for c in found}
