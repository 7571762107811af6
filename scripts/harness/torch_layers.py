"""PyTorch's convolutions, one by one, in a process of their own.

The process reads workloads as JSON lines and answers each with ``{"kernel_us": ..., "e2e_us":
...}`` or ``{"failure": ...}``. The protocol is that of Convoy's candidates: device time of 20 calls
in a replayed CUDA graph, and one synchronized call. Its first answer has the ceilings of the
machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

CALLS, REPLAYS = 20, 15


class Torch:
    """The parent's side of the process. ``ceilings``: bytes and operations per second."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ceilings: dict[str, Any] = self._read()

    def time(self, workload: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(workload) + "\n")
            self._process.stdin.flush()
        except OSError:
            return {"failure": "PyTorch's process has ended"}
        return self._read()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        return {"failure": "PyTorch's process has ended"}


def _call(torch: Any, w: dict[str, Any]) -> Callable[[], Any]:
    """A call of the workload's direction on random channels-last tensors."""
    dtype = getattr(torch, w["dtype"])
    (sh, sw), (top, left, bottom, right) = w["stride"], w["padding"]
    if (top, left) != (bottom, right):
        raise ValueError("PyTorch pads both ends alike")

    def tensor(*nhwc: int) -> Any:
        return torch.randn(nhwc, device="cuda").to(dtype).permute(0, 3, 1, 2)

    x = tensor(w["n"], w["h"], w["w"], w["c"])
    weight = tensor(w["k"], w["r"], w["s"], w["c"] // w["groups"])
    geometry = ((sh, sw), (top, left), tuple(w["dilation"]))
    if w["op"] == "fprop":
        return lambda: torch.nn.functional.conv2d(x, weight, None, *geometry, w["groups"])
    y = torch.nn.functional.conv2d(x, weight, None, *geometry, w["groups"])
    dy = torch.randn_like(y)
    wanted = [w["op"] == "dgrad", w["op"] == "wgrad", False]
    return lambda: torch.ops.aten.convolution_backward(
        dy, x, weight, None, *geometry, False, (0, 0), w["groups"], wanted
    )


def _times(torch: Any, call: Callable[[], Any]) -> dict[str, Any]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        for _ in range(CALLS):
            call()
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    kernel = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        kernel.append(start.elapsed_time(end) * 1e3 / CALLS)
    whole = []
    for _ in range(REPLAYS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        whole.append((time.perf_counter() - begin) * 1e6)
    return {"kernel_us": statistics.median(kernel), "e2e_us": statistics.median(whole)}


def _ceilings(torch: Any) -> dict[str, Any]:
    """A copy of 2 GiB (bytes read plus written) and a GEMM of 8192^3 in fp16, both warm."""

    def seconds(call: Callable[[], Any]) -> float:
        for _ in range(5):
            call()
        times = []
        for _ in range(20):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return statistics.median(times)

    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = seconds(lambda: target.copy_(source))
    source = target = None  # frees them
    a, b = (torch.randn(8192, 8192, device="cuda").half() for _ in range(2))
    gemm = seconds(lambda: a @ b)
    return {
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "bandwidth": 2 * (1 << 31) / copied,
        "flops": 2 * 8192**3 / gemm,
    }


def main() -> None:
    try:
        import torch

        torch.backends.cudnn.benchmark = True
        print(json.dumps(_ceilings(torch)), flush=True)
    except Exception as error:
        print(json.dumps({"failure": f"{type(error).__name__}: {error}"}), flush=True)
        return
    for line in sys.stdin:
        try:
            workload = json.loads(line)
            tf32 = workload["math"] == "tf32"
            torch.backends.cudnn.allow_tf32 = tf32
            answer = _times(torch, _call(torch, workload))
        except Exception as error:  # a peer that fails must not end the comparison
            answer = {"failure": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        torch.cuda.empty_cache()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
