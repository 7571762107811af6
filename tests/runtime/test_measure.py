"""Number of calls behind each time, against the stand-in for CUDA."""

from __future__ import annotations

from support import Fakes


def test_functions_are_called_once_before_any_time_is_taken(fakes: Fakes) -> None:
    calls, samples = fakes.run(
        """
        load_runtime()
        count = [0]
        def increment():
            count[0] += 1
        body = tvm_ffi.convert(increment)
        flush = function("cuda.empty")((64,), "float32", 0)
        calls, samples = {}, {}
        for name, arguments in [
            ("kernel_us", (4, 5, 1e6)),
            ("cold_us", (flush, 4, 5, 1e6)),
            ("enqueue_us", (4, 5, 1e6)),
            ("e2e_us", (5, 1e6)),
            ("call", ()),
        ]:
            count[0] = 0
            times = function("measure." + name)(body, [], 0, *arguments)
            calls[name], samples[name] = count[0], len(times or ())
        result([calls, samples])
        """
    )
    assert calls == {
        "kernel_us": 1 + 4,  # captured once, then replayed
        "cold_us": 1 + 4,
        "enqueue_us": 1 + 4 * 5,
        "e2e_us": 1 + 5,
        "call": 1,
    }
    assert samples == {"kernel_us": 5, "cold_us": 5, "enqueue_us": 5, "e2e_us": 5, "call": 0}
