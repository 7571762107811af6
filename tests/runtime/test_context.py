"""Streams, captures, threads and the hot path, against a stand-in for CUDA that keeps its rules."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from support import Fakes

from convoy import paths

SETUP = """
load_runtime()
streams = FakeStreams(cuda)
blobs = kernel_blobs()
w = small(epilogue=Epilogue(bias=True))
def module(*symbols):
    return create_module([kernel_entry(w, blobs, s) for s in symbols or ("f",)], blobs)
def right(tensors):
    from convoy.measure import reference
    names = [n for n, _, _ in w.operand_shapes()]
    arrays = [to_host(t) for t in tensors]
    (expected,) = reference.full(w, dict(zip(names, arrays)))
    return bool(np.allclose(arrays[-1], expected, rtol=1e-4, atol=1e-5))
def poison(tensors):
    function("cuda.fill")(tensors[-1], 0xFF)
"""


def run(fakes: Fakes, code: str) -> Any:
    return fakes.run(SETUP + textwrap.dedent(code))


def test_hot_path_is_one_launch(fakes: Fakes) -> None:
    lines = run(
        fakes,
        """
        m = module(); t = device_arrays(w)
        m["f"](*t); log()
        f = m["f"]
        for _ in range(3): f(*t)
        result(log())
        """,
    )
    assert lines == ["1 kernel conv stream=0"] * 3


def test_prepare_leaves_nothing_but_the_launch(fakes: Fakes) -> None:
    lines = run(
        fakes,
        """
        m = module("f", "g"); t = device_arrays(w)
        m["convoy_prepare"](); before = log()
        m["f"](*t); m["g"](*t)
        result([before, log()])
        """,
    )
    before, after = lines
    assert sum("malloc" in line for line in before) >= 1
    assert after == ["1 kernel conv stream=0"] * 2


def test_loading_touches_no_device(fakes: Fakes) -> None:
    assert (
        run(
            fakes,
            """
            m = module()
            saved = function("module.save")(m)
            tvm_ffi.get_global_func("ffi.Module.load_from_bytes.convoy")(saved)["convoy_spec"]()
            result(log())
            """,
        )
        == []
    )


def test_workspace_is_one_for_a_module_and_stream(fakes: Fakes) -> None:
    """The fake kernel needs less than a granule; two functions share the block of their stream."""
    counts = run(
        fakes,
        """
        m = module("f", "g"); t = device_arrays(w); log()
        counts = []
        for s in [0, streams.create(), streams.create(), 0]:
            streams.use(s)
            for name in "fg":
                m[name](*t)
                counts.append(sum("malloc" in line for line in log()))
        result(counts)
        """,
    )
    assert counts == [1, 0, 1, 0, 1, 0, 0, 0]


def test_capture_on_a_new_stream_after_one_eager_call(fakes: Fakes) -> None:
    """As the Relax VM captures: eager on the current stream, then on a stream of its own, in
    global mode. The graph has workspace of its own, and replays give fresh results."""
    answer = run(
        fakes,
        """
        m = module(); f = m["f"]; t = device_arrays(w)
        f(*t)
        capture = streams.create(); streams.use(capture); log()
        streams.begin(capture)
        f(*t); f(*t)
        during = log()
        graph = streams.end(capture)
        streams.use(0)
        oks = []
        for seed in (1, 2):
            for old, new in zip(t[:-1], device_arrays(w, seed)): function("cuda.copy")(new, old)
            poison(t); streams.launch(graph); oks.append(right(t))
        info = call_json("cuda.workspace_info")
        streams.destroy(graph)
        result([during, oks, info["idle"], call_json("cuda.workspace_info")["idle"]])
        """,
    )
    during, oks, idle_before, idle_after = answer
    assert not any("forbidden" in line for line in during)
    assert [line for line in during if "captured" in line] == [
        "1 captured kernel conv stream=1"
    ] * 2
    assert oks == [True, True]
    assert idle_after > idle_before, "the graph's workspace comes back with the graph"


def test_workspace_of_a_graph_is_used_again_by_the_next(fakes: Fakes) -> None:
    sizes = run(
        fakes,
        """
        m = module(); f = m["f"]; t = device_arrays(w); f(*t)
        sizes = []
        for _ in range(20):
            s = streams.create(); streams.use(s); streams.begin(s); f(*t)
            graph = streams.end(s); streams.use(0)
            streams.launch(graph); streams.destroy(graph)
            sizes.append(call_json("cuda.workspace_info")["allocated"])
        result(sizes)
        """,
    )
    assert len(set(sizes)) == 1


def test_graph_and_eager_calls_never_share_workspace(fakes: Fakes) -> None:
    """A replay and an eager call may run at once, so their workspaces differ."""
    assert (
        run(
            fakes,
            """
        m = module(); f = m["f"]; t = device_arrays(w); f(*t); log()
        s = streams.create(); streams.use(s); f(*t)   # eager on the stream that is captured next
        streams.begin(s); log(); f(*t)
        allocations = [line for line in log() if "malloc" in line]
        graph = streams.end(s)
        result(len(allocations))
        """,
        )
        == 1
    )


def test_fork_and_join_inside_a_capture(fakes: Fakes) -> None:
    answer = run(
        fakes,
        """
        m = module(); f = m["f"]
        a, b = device_arrays(w, 1), device_arrays(w, 2)
        origin, side = streams.create(), streams.create()
        def both():
            streams.order(origin, side)
            streams.use(origin); f(*a)
            streams.use(side); f(*b)
            streams.order(side, origin)
        both(); log()
        streams.begin(origin); both(); graph = streams.end(origin)
        lines = log()
        poison(a); poison(b); streams.launch(graph)
        result([lines, right(a), right(b)])
        """,
    )
    lines, a, b = answer
    captured = [line.split("stream=")[1] for line in lines if "captured kernel" in line]
    assert captured == ["1", "2"]
    assert sum("malloc" in line for line in lines) == 2, "one workspace for each branch"
    assert a and b


def test_capture_before_the_first_call_is_refused(fakes: Fakes) -> None:
    answer = run(
        fakes,
        """
        m = module(); f = m["f"]; t = device_arrays(w)
        s = streams.create(); streams.use(s); streams.begin(s)
        try: f(*t)
        except errors.CaptureNotReady as err: text = str(err)
        streams.end(s)
        m["convoy_prepare"](); streams.begin(s); f(*t); graph = streams.end(s)
        poison(t); streams.launch(graph)
        result([text, right(t)])
        """,
    )
    assert "convoy_prepare" in answer[0]
    assert answer[1]


def test_invalidated_capture_says_so(fakes: Fakes) -> None:
    text = run(
        fakes,
        """
        m = module(); f = m["f"]; t = device_arrays(w); f(*t)
        s = streams.create(); streams.use(s); streams.begin(s)
        cuda.cudaDeviceSynchronize()
        try: f(*t)
        except RuntimeError as err: result(str(err))
        """,
    )
    assert "invalidated by an earlier error" in text


def test_threads_have_their_own_workspace(fakes: Fakes) -> None:
    """Eight threads, each with its own data on one shared stream; the fake kernel would mix up the
    sums of two calls that share a workspace."""
    answer = run(
        fakes,
        """
        import threading
        m = module(); f = m["f"]
        data = [device_arrays(w, seed) for seed in range(8)]
        barrier = threading.Barrier(8)
        def work(t):
            f(*t)
            barrier.wait()
            for _ in range(50): f(*t)
        threads = [threading.Thread(target=work, args=(t,)) for t in data]
        [t.start() for t in threads]; [t.join() for t in threads]
        result([all(map(right, data)), call_json("cuda.workspace_info")["allocated"]])
        """,
    )
    assert answer == [True, 8 * (2 << 20)]


def test_state_of_a_thread_goes_to_the_next(fakes: Fakes) -> None:
    counts = run(
        fakes,
        """
        import os, threading, time
        m = module(); f = m["f"]; t = device_arrays(w); log()
        counts = []
        for _ in range(5):
            thread = threading.Thread(target=lambda: f(*t)); thread.start(); thread.join()
            while os.path.exists(f"/proc/self/task/{thread.native_id}"):
                time.sleep(0.001)  # join returns before the thread has given back its state
            counts.append(sum("malloc" in line for line in log()))
        result([counts, right(t)])
        """,
    )
    assert counts == [[1, 0, 0, 0, 0], True]


def test_more_streams_than_lanes(fakes: Fakes) -> None:
    answer = run(
        fakes,
        """
        m = module(); f = m["f"]; t = device_arrays(w)
        handles = [streams.create() for _ in range(200)]
        ok = True
        for s in handles + handles[::7]:
            streams.use(s); poison(t); f(*t); ok = ok and right(t)
        result([ok, call_json("cuda.workspace_info")["allocated"] >> 21])
        """,
    )
    assert answer[0]
    assert answer[1] <= 64


def test_larger_function_gets_a_larger_workspace(fakes: Fakes) -> None:
    answer = run(
        fakes,
        """
        big = small(n=32, h=64, w=64, epilogue=Epilogue(bias=True))
        m = module(); t = device_arrays(w); m["f"](*t); log()
        g = create_module([kernel_entry(big, blobs, "g")], blobs)["g"]
        tensors = device_arrays(big); log()
        g(*tensors); first = sum("malloc" in line for line in log())
        g(*tensors); m["f"](*t); second = sum("malloc" in line for line in log())
        result([first, second, right(t)])
        """,
    )
    assert answer == [1, 0, True]


def test_modules_that_come_and_go(fakes: Fakes) -> None:
    """A function's place in the caches is used again; what an earlier one cached is not."""
    assert run(
        fakes,
        """
        import gc
        ok = True
        for seed in range(30):
            w = small(k=4 + seed % 5, epilogue=Epilogue(bias=True))
            t = device_arrays(w, seed)
            create_module([kernel_entry(w, blobs)], blobs)["f"](*t)
            ok = ok and right(t)
            gc.collect()
        result(ok)
        """,
    )


def test_errors_of_the_device(fakes: Fakes) -> None:
    wrong, memory = run(
        fakes,
        """
        t = device_arrays(w)
        def error(m):
            try: m["f"](*t)
            except Exception as err: return [type(err).__name__, str(err)]
        wrong = error(create_module([kernel_entry(w, blobs, arch=80)], blobs))
        cuda.fake_cuda_limit_memory(0)
        result([wrong, error(module())])
        """,
    )
    assert wrong[0] == "WrongDevice" and "9.0" in wrong[1] and "8.0" in wrong[1]
    assert memory[0] == "RuntimeError" and "no memory left" in memory[1]


def test_second_gpu_is_made_current_for_the_call_only(fakes: Fakes) -> None:
    assert run(
        fakes,
        """
        m = module()
        t = [function("cuda.empty")(tuple(x.shape), "float32", 1) for x in device_arrays(w)]
        for x, y in zip(t, device_arrays(w)): function("cuda.copy")(y, x)
        m["f"](*t)
        device = ctypes.c_int(-1); cuda.cudaGetDevice(ctypes.byref(device))
        result([right(t), device.value])
        """,
    ) == [True, 0]


def test_missing_cuda_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "libcudart.so.13"
    empty.write_bytes(b"")
    code = (
        "from convoy.runtime import current_device\n"
        "from convoy.errors import NoGpu\n"
        "try: current_device()\n"
        "except NoGpu as err: print(err)\n"
    )
    environment = {
        "PYTHONPATH": os.environ["PYTHONPATH"],
        "CONVOY_RUNTIME_LIBRARY": str(paths.runtime_library()),
        "CONVOY_CUDART": str(empty),
        "PATH": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "nvidia-cuda-runtime" in done.stdout or "driver" in done.stdout
