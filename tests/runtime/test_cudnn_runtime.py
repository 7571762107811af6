"""The cuDNN backend of the runtime against a stand-in for cuDNN: what is called when, what happens
with another version, and that no plan or handle is used by two threads at once."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from support import Fakes

SETUP = """
dnn = ctypes.CDLL(locations()["cudnn"])
dnn.fake_cudnn_log.restype = ctypes.c_char_p
def calls():
    return dnn.fake_cudnn_log().decode().splitlines()
load_runtime()
streams = FakeStreams(cuda)
w = small()
t = device_arrays(w)
def module(engine=62, **more):
    return create_module([cudnn_entry(w, engine, **more)], {})
def written():
    return float(to_host(t[-1]).flat[0])
def error(act):
    try: act()
    except Exception as err: return [type(err).__name__, str(err)]
"""


def run(fakes: Fakes, code: str, **environment: str) -> Any:
    return fakes.run(SETUP + textwrap.dedent(code), **environment)


def test_hot_path_is_one_execution(fakes: Fakes) -> None:
    first, later, value = run(
        fakes,
        """
        f = module()["f"]
        f(*t); first = calls(); log()
        f(*t); f(*t)
        result([first, calls() + log(), written()])
        """,
    )
    assert first.count("create") == 1 and first.count("build") == 1
    assert first.count("set_stream") == 1
    assert [line.split(" workspace")[0] for line in later[:2]] == ["execute engine=62"] * 2
    wait, kernel = "memset_async stream=0", "kernel cudnn stream=0"
    assert [line.split(" ", 1)[1] for line in later[2:]] == [wait, kernel] * 2
    assert value == 62.0


def test_stream_of_the_handle_follows_the_current_stream(fakes: Fakes) -> None:
    lines = run(
        fakes,
        """
        f = module()["f"]; f(*t)
        s = streams.create(); streams.use(s); f(*t); calls(); log()
        f(*t); streams.use(0); f(*t); f(*t); streams.use(s); f(*t)
        result([calls().count("set_stream"), [x[-1] for x in log() if "cudnn" in x]])
        """,
    )
    assert lines == [2, ["1", "0", "0", "1"]]


def test_equal_functions_share_a_plan(fakes: Fakes) -> None:
    counts = run(
        fakes,
        """
        m = create_module([cudnn_entry(w, 62, "a"), cudnn_entry(w, 62, "b"),
                           cudnn_entry(w, 63, "c")], {})
        for s in "abc": m[s](*t)
        again = create_module([cudnn_entry(w, 62, "z")], {})
        again["z"](*t)
        result(calls().count("build"))
        """,
    )
    assert counts == 2


def test_capture_and_replay(fakes: Fakes) -> None:
    lines, value = run(
        fakes,
        """
        f = module()["f"]; f(*t)
        s = streams.create(); streams.use(s); calls(); log()
        streams.begin(s); f(*t); graph = streams.end(s)
        lines = calls() + log()
        function("cuda.fill")(t[-1], 0); streams.launch(graph)
        result([lines, written()])
        """,
    )
    assert not any("forbidden" in line or line in ("create", "build") for line in lines)
    assert value == 62.0


def test_waits_for_all_that_is_enqueued_before_it(fakes: Fakes) -> None:
    """Its first kernel need not wait for one that lets its successor start early."""
    eager, first, second = run(
        fakes,
        """
        log(); f = module()["f"]; f(*t); log(); f(*t); eager = log()
        s = streams.create(); streams.use(s); f(*t); log()
        streams.begin(s); log(); f(*t); first = log(); f(*t); second = log(); streams.end(s)
        result([[l.split(" ", 1)[1] for l in lines] for lines in (eager, first, second)])
        """,
    )
    assert eager[:1] == ["memset_async stream=0"]
    assert not any("empty" in line for line in first)
    assert second.index("captured empty stream=1") == 0
    assert not any("memset" in line for line in first + second)


@pytest.mark.parametrize("version", ["91900", "92100"])
def test_plan_json_is_used_where_the_version_fits(version: str, fakes: Fakes) -> None:
    lines, value = run(
        fakes,
        """
        f = module(plan_json="version=91900 engine=62")["f"]; f(*t)
        result([calls(), written()])
        """,
        FAKE_CUDNN_VERSION=version,
    )
    assert lines.count("restore") == 1
    assert lines.count("build") == (0 if version == "91900" else 1)
    assert value == 62.0


def test_engine_that_the_installed_version_lacks(fakes: Fakes) -> None:
    kind, text = run(
        fakes,
        'result(error(lambda: module()["f"](*t)))',
        FAKE_CUDNN_VERSION="92800",
        FAKE_CUDNN_ENGINES="40",
    )
    assert kind == "LibraryVersionMismatch"
    assert "engine 62 of cuDNN 9.19.0" in text and "cuDNN 9.28.0" in text
    assert "Install cuDNN 9.19.0 or build the module again" in text


def test_engine_refused_by_the_same_version(fakes: Fakes) -> None:
    kind, text = run(fakes, 'result(error(lambda: module()["f"](*t)))', FAKE_CUDNN_ENGINES="40")
    assert kind == "RuntimeError"
    assert "refuses engine 62" in text and "fake words" in text


def test_engine_without_workspace(fakes: Fakes) -> None:
    lines = run(fakes, 'module(engine=3)["f"](*t); result(calls() + log())')
    assert not any("VIOLATION" in line or "malloc 2097152" in line for line in lines)


def test_bias_of_zeros(fakes: Fakes) -> None:
    lines, value, hot = run(
        fakes,
        """
        f = module(zero_bias=True)["f"]; f(*t); first = calls(); log()
        f(*t); calls()
        result([first, written(), log()[1:2]])
        """,
    )
    assert "added operand of zeros" in lines
    assert value == 62.0
    assert hot == ["1 kernel cudnn stream=0"]


def test_threads_have_plans_handles_and_workspaces_of_their_own(fakes: Fakes) -> None:
    lines = run(
        fakes,
        """
        import threading
        f = module()["f"]
        barrier = threading.Barrier(8)
        def work(tensors):
            f(*tensors); barrier.wait()
            for _ in range(200): f(*tensors)
        data = [device_arrays(w, seed) for seed in range(8)]
        threads = [threading.Thread(target=work, args=(x,)) for x in data]
        [x.start() for x in threads]; [x.join() for x in threads]
        result(calls())
        """,
    )
    assert not [line for line in lines if "VIOLATION" in line]
    assert lines.count("create") == 8 and lines.count("build") == 8
    assert len({line.split("workspace=")[1] for line in lines if "execute" in line}) == 8


def test_cublaslt_is_looked_for_before_cudnn_is_used(fakes: Fakes, tmp_path: Any) -> None:
    """Without it cuDNN would end the process."""
    import shutil

    alone = tmp_path / "libcudnn.so.9"
    shutil.copy(fakes.cudnn, alone)
    kind, text = fakes.run(
        """
        load_runtime()
        try: function("cudnn.version")()
        except Exception as err: result([type(err).__name__, str(err)])
        else: result(["found", ""])
        """,
        CONVOY_CUDNN=str(alone),
        CONVOY_CUBLASLT=str(tmp_path / "none"),
    )
    if kind == "found":
        pytest.skip("cuBLASLt is on the library path of this machine")
    assert kind == "LibraryMissing"
    assert "libcublasLt.so.13" in text and "pip install nvidia-cublas" in text


def test_missing_cudnn_is_named(fakes: Fakes, tmp_path: Any) -> None:
    (tmp_path / "libcudnn.so.9").write_bytes(b"no library")
    kind, text = fakes.run(
        """
        load_runtime()
        t = device_arrays(small())
        m = create_module([cudnn_entry(small(), 62)], {})
        try: m["f"](*t)
        except Exception as err: result([type(err).__name__, str(err)])
        else: result(["found", ""])
        """,
        CONVOY_CUDNN=str(tmp_path / "libcudnn.so.9"),
    )
    if kind != "LibraryMissing":
        pytest.skip("another cuDNN is on the library path of this machine")
    assert "pip install nvidia-cudnn-cu13" in text


def test_volumes_are_tensors_of_five_axes_with_channels_last(fakes: Fakes) -> None:
    lines = run(
        fakes,
        """
        from convoy.ir.depth import Depth
        depth = Depth(7, 3, stride=2, padding=(1, 0), dilation=2)
        w = small(depth=depth, padding=(1, 1, 0, 1), epilogue=Epilogue(bias=True))
        t = device_arrays(w)
        module()["f"](*t)
        result([written(), [line for line in calls() if line.startswith("attribute")]])
        """,
        FAKE_CUDNN_GEOMETRY="1",
    )
    value, found = lines
    assert value == 62.0
    tensors = [line for line in found if line[10:13] in ("902", "903")]
    assert tensors[2:4] == ["attribute 902 2 4 7 5 6", "attribute 903 840 1 120 24 4"], "x"
    assert "attribute 902 8 4 3 3 3" in tensors and "attribute 902 1 8 1 1 1" in tensors
    assert tensors[:2] == ["attribute 902 2 8 2 4 6", "attribute 903 384 1 192 48 8"], "sums"
    convolution = {line.split(" ", 2)[1]: line.split(" ", 2)[2] for line in found[2:7]}
    assert convolution["106"] == "3"
    assert (convolution["105"], convolution["104"]) == ("1 1 1", "0 0 1")
    assert convolution["103"] == "2 1 1"


def test_a_kernel_library_is_not_given_volumes(fakes: Fakes) -> None:
    name, text = run(
        fakes,
        """
        from convoy.ir.depth import Depth
        w = small(depth=Depth(4, 3))
        blobs = kernel_blobs()
        t = device_arrays(w)
        result(error(lambda: create_module([kernel_entry(w, blobs)], blobs)["f"](*t)))
        """,
    )
    assert "volumes" in text, name
