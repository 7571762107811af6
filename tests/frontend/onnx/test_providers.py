"""Arguments of onnxruntime's sessions: providers with their options, session options."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from convoy import errors
from convoy.onnx.providers import (
    TARGETS,
    Place,
    check_session_options,
    first_present,
    places_of,
    provider_of,
)

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def test_providers_are_places_in_their_order() -> None:
    assert places_of(None) == []
    assert places_of([CUDA, CPU]) == [Place("cuda"), Place("llvm")]
    given = [(CUDA, {"device_id": 1}), "TensorrtExecutionProvider", CPU]
    assert places_of(given) == [Place("cuda", 1), Place("cuda"), Place("llvm")]
    assert places_of([CUDA, CPU], [{"device_id": "2"}, {}]) == [Place("cuda", 2), Place("llvm")]
    for name in (CUDA, CPU):
        assert provider_of(TARGETS[name]) == name


def test_options_without_effect_are_named() -> None:
    with pytest.warns(UserWarning, match="cudnn_conv_algo_search of CUDAExecutionProvider without"):
        places_of([(CUDA, {"cudnn_conv_algo_search": "HEURISTIC", "device_id": 0})])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        places_of([(CUDA, {"device_id": 0}), CPU])


@pytest.mark.parametrize(
    ("providers", "options", "match"),
    [
        (CPU, None, r"\['CPUExecutionProvider'\]"),
        (["DmlExecutionProvider"], None, "'DmlExecutionProvider'; expected one of CUDA"),
        ([(CUDA, {"device_id": "cuda:0"})], None, "device_id 'cuda:0'"),
        ([(CUDA, {"device_id": -1})], None, "device_id '-1'"),
        ([CUDA, CPU], [{}], "provider_options="),
        ([(CUDA, {"device_id": 1})], [{}], "provider_options="),
    ],
)
def test_mistakes(providers, options, match) -> None:
    with pytest.raises(errors.InvalidOption, match=match):
        places_of(providers, options)


def test_the_first_place_that_is_present_is_taken() -> None:
    second, cpu = Place("cuda", 1), Place("llvm")
    assert first_present([second, Place("cuda"), cpu], lambda index: index == 0) == Place("cuda")
    assert first_present([second, cpu], lambda index: False) == cpu
    assert first_present([cpu, second], lambda index: True) == cpu
    assert first_present([], lambda index: index == 0) == Place("cuda")
    assert first_present([], lambda index: False) == cpu
    with pytest.raises(errors.NoGpu, match=r"GPU 1, which is absent.*Add 'CPUExecutionProvider'"):
        first_present([second], lambda index: index == 0)


def test_session_options_that_would_write_files_are_refused() -> None:
    plain = {"graph_optimization_level": 99, "enable_profiling": False}
    check_session_options(None)
    check_session_options(SimpleNamespace(**plain, optimized_model_filepath=""))
    with pytest.raises(errors.InvalidOption, match=r"enable_profiling.*convoy trace"):
        check_session_options(SimpleNamespace(**{**plain, "enable_profiling": True}))
    with pytest.raises(errors.InvalidOption, match=r"optimized_model_filepath.*export_library"):
        check_session_options(SimpleNamespace(**plain, optimized_model_filepath="m.onnx"))
    with pytest.raises(errors.InvalidOption, match=r"expected an onnxruntime.SessionOptions"):
        check_session_options(["CPUExecutionProvider"])
