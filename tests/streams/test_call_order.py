"""Stream, event and launch calls in their order, by the real virtual machine and runtimes on a
recording stand-in for CUDA: eagerly, while captured, and after failures."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

FAKES = Path(__file__).parents[1] / "runtime"

NETWORK = """
import dataclasses
from tvm import relax
from tvm.relax import op
from tvm.runtime.vm import VirtualMachine
from convoy.ir.artifact import Meta, TensorInfo
from convoy.lower.lowered import Lowered
from convoy.ir.device import Device
from convoy.streams.link import Part, link
from convoy.streams.program import read
from convoy.streams.costs import LaunchCosts
from convoy.ir.schedule_parts import Occupancy
from convoy.streams.planner import multi_stream
from convoy.runtime.session import Session

CONV = small()
SHAPES = {n: s for n, s, _ in CONV.operand_shapes()}

def network(broken=False):
    # A fork of three branches, one of them an external function, and a join.
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPES["x"], "float32"))
    filter = relax.const(host_arrays(CONV)[1])
    with builder.function("main", [x]):
        with builder.dataflow():
            start = builder.emit(op.exp(x))
            left = builder.emit(op.call_dps_packed("conv", relax.Tuple([start, filter]),
                                relax.TensorType(SHAPES["y"], "float32")))
            left = builder.emit(op.mean(left, axis=[3], keepdims=True))
            middle = builder.emit(op.mean(start, axis=[3], keepdims=True))
            right = builder.emit(op.max(start, axis=[3], keepdims=True))
            end = builder.emit_output(builder.emit(op.concat([left, middle, right], axis=3)))
        builder.emit_func_output(end)
    blobs = kernel_blobs()
    entry = kernel_entry(CONV, blobs, "conv", **({"swizzle": 99} if broken else {}))
    target = tvm.target.Target("nvidia/nvidia-h100", host="llvm")
    return Lowered.of(builder.get(), target, [create_module([entry], blobs)])

def schedule_of(lowered, streams, conv_us=5.0):
    program = read(lowered.calls, Device())
    ops = [
        dataclasses.replace(
            o, occupancy=Occupancy(waves=0.1),
            duration_us=conv_us if o.symbol in ("conv", "mean") else 5.0,
            chained_us=None,
        )
        for o in program.ops
    ]
    cheap = LaunchCosts(cross_us=0.1, fork_us=0.1)  # so that all branches are worth a stream
    return program, multi_stream(ops, program.buffers, streams, cheap)

def build(streams=3, broken=False, conv_us=5.0):
    lowered = network(broken)
    program, schedule = schedule_of(lowered, streams, conv_us)
    return link([Part(lowered, program, schedule)]), schedule

def tensor():
    return tvm.runtime.empty(SHAPES["x"], "float32", tvm.cuda(0))

def calls():
    return [line.split(" ", 1)[1] for line in log()]

def plan(schedule):
    return [[o.symbol, o.stream, o.depends] for o in schedule.ops]

def meta():
    inputs = (TensorInfo("x", SHAPES["x"], "float32"),)
    return Meta(inputs, inputs, "cuda", "float32", cuda_graph=True)
"""


def load_fakes():
    spec = importlib.util.spec_from_file_location("support", FAKES / "support.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("support", module)
    spec.loader.exec_module(module)
    return module.Fakes


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory):
    return load_fakes()(tmp_path_factory.mktemp("fakes"))


def launches(lines: list[str]) -> list[tuple[str, int]]:
    """(kernel, stream) of each launch; TVM puts "_kernel" behind the names of its own."""
    found = [re.search(r"kernel (\w+) stream=(\d+)", line) for line in lines]
    return [(m[1].removesuffix("_kernel"), int(m[2])) for m in found if m]


def check_calls(plan: list, lines: list[str], origin: int = 0) -> dict[int, int]:
    """The launches are those of the plan, in its order, on one stream for each of its streams, and
    events put each behind what it depends on, behind the fork and before the join. Returns the
    streams of the plan by number."""
    launched = launches(lines)
    assert [name for name, _ in launched] == [symbol for symbol, _, _ in plan]
    streams = {0: origin}
    for (_, stream), (_, planned, _) in zip(launched, plan, strict=True):
        assert streams.setdefault(planned, stream) == stream
    assert len(set(streams.values())) == len(streams)
    seen: dict[int, set[int]] = {origin: {-1}}  # of each stream what is before its next call
    events: dict[int, set[int]] = {}
    place = 0
    for line in lines:
        if match := re.match(r"event_record (\d+) stream=(\d+)", line):
            events[int(match[1])] = set(seen.get(int(match[2]), ()))
        elif match := re.match(r"event_wait (\d+) stream=(\d+)", line):
            seen.setdefault(int(match[2]), set()).update(events[int(match[1])])
        elif match := re.search(r"kernel \w+ stream=(\d+)", line):
            before = seen.setdefault(int(match[1]), set())
            assert {-1, *plan[place][2]} <= before, line
            before.add(place)
            place += 1
    assert seen[origin] == set(range(-1, len(plan))), "all streams are joined"
    return streams


def captured_graph(lines: list[str]) -> tuple[int, int, int]:
    """Nodes of a captured graph, its edges without those that others imply, and these."""
    latest: dict[str, set[int]] = {}  # of each stream and event what the next node follows
    before: list[set[int]] = []
    edges = implied = 0
    for line in lines:
        if match := re.match(r"event_record (\d+) stream=(\d+)", line):
            latest[f"event {match[1]}"] = set(latest.get(match[2], ()))
        elif match := re.match(r"event_wait (\d+) stream=(\d+)", line):
            latest.setdefault(match[2], set()).update(latest[f"event {match[1]}"])
        elif match := re.match(r"captured .* stream=(\d+)", line):
            follows = latest.get(match[1], set())
            behind = set().union(*(before[node] for node in follows))
            edges += len(follows - behind)
            implied += len(follows & behind)
            latest[match[1]] = {len(before)}
            before.append(follows | behind)
    return len(before), edges, implied


def test_eager_calls(fakes) -> None:
    runs = fakes.run_tvm(
        NETWORK
        + """
x = tensor(); runs = []
for streams in (1, 2, 3):
    executable, schedule = build(streams)
    vm = VirtualMachine(executable, tvm.cuda(0))
    calls(); vm["main"](x); first = calls(); vm["main"](x)
    runs.append([streams, plan(schedule), first, calls()])
result(runs)
"""
    )
    for streams, plan, first, second in runs:
        assert {stream for _, stream, _ in plan} == set(range(streams))
        check_calls(plan, first)
        check_calls(plan, second)
        rest = [line for line in second if not re.match("kernel|event_", line)]
        assert all(line.startswith("malloc") for line in rest) and len(rest) <= 1, "but the result"
        if streams == 1:
            assert not [line for line in second if "event" in line]


def test_callers_stream_is_kept(fakes) -> None:
    """Runs fork from the caller's stream and join into it, which is the current one afterwards."""
    plan, lines, mine, after = fakes.run_tvm(
        NETWORK
        + """
executable, schedule = build()
vm = VirtualMachine(executable, tvm.cuda(0)); x = tensor(); vm["main"](x)
streams = FakeStreams(cuda); calls(); mine = streams.create(); number = calls()[0].split()[1]
streams.use(mine); vm["main"](x); lines = calls()
after = tvm_ffi.get_raw_stream(tvm_ffi.device("cuda:0"))
streams.begin(mine); function("graph.capturing")(0) or 1 / 0
result([plan(schedule), lines, int(number), after == mine])
"""
    )
    check_calls(plan, lines, origin=mine)
    assert after


def test_captured_as_one_graph(fakes) -> None:
    """A session: eager, captured with all its streams and launched, launched alone.

    What follows the eager run, which may be another library's kernel, waits for its end.
    """
    plan, eager, captured, replayed, bound, again = fakes.run_tvm(
        NETWORK
        + """
executable, schedule = build()
session = Session(executable, meta(), tvm.cuda(0)); calls()
runs = []
for _ in range(3):
    session.run(); runs.append(calls())
y = tensor(); calls()
session.bind_input("x", y); session.run(); bound = calls()
session.run()
result([plan(schedule), *runs, bound, calls()])
"""
    )
    *eager, last = eager
    assert last.startswith("memset_async")
    check_calls(plan, eager)
    begin = next(i for i, line in enumerate(captured) if line.startswith("begin_capture"))
    end = captured.index("end_capture")
    origin = int(captured[begin].rsplit("=", 1)[1])
    inside = captured[begin + 1 : end]
    assert all(line.startswith(("captured kernel", "event_", "malloc")) for line in inside)
    check_calls(plan, inside, origin)
    assert not launches(captured[:begin] + captured[end:])
    nodes, edges, _ = captured_graph(inside)
    assert captured[end + 1] == f"instantiate nodes={nodes} edges={edges}"
    assert captured[-1] == "graph_launch" and replayed == ["graph_launch"]
    assert "end_capture" in bound and bound[-1] == "graph_launch", "another pointer, another graph"
    assert again == ["graph_launch"]


def test_a_graph_has_no_edges_that_others_imply(fakes) -> None:
    """Four forks of two branches: each follows what the side stream has run before anyway."""
    inside, end = fakes.run_tvm(
        NETWORK
        + """
builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType(SHAPES["x"], "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        value = x
        for _ in range(4):
            left = builder.emit(op.mean(value, axis=[3], keepdims=True))
            right = builder.emit(op.max(value, axis=[3], keepdims=True))
            value = builder.emit(op.concat([left, right], axis=3))
        end = builder.emit_output(value)
    builder.emit_func_output(end)
lowered = Lowered.of(builder.get(), tvm.target.Target("nvidia/nvidia-h100", host="llvm"), [])
program, schedule = schedule_of(lowered, 2)
executable = link([Part(lowered, program, schedule)])
session = Session(executable, meta(), tvm.cuda(0)); session.run(); calls(); session.run()
lines = calls()
begin = next(i for i, line in enumerate(lines) if line.startswith("begin_capture"))
result([lines[begin + 1 : lines.index("end_capture")], lines[lines.index("end_capture") + 1]])
"""
    )
    nodes, edges, implied = captured_graph(inside)
    assert implied
    assert end == f"instantiate nodes={nodes} edges={edges}"


def test_inside_of_the_callers_capture(fakes) -> None:
    """While the caller captures, a session's calls go into that capture, and an empty node between
    them and what follows."""
    plan, lines, origin = fakes.run_tvm(
        NETWORK
        + """
executable, schedule = build()
session = Session(executable, meta(), tvm.cuda(0)); session.run(); session.run()
streams = FakeStreams(cuda); calls(); mine = streams.create(); number = calls()[0].split()[1]
streams.use(mine); streams.begin(mine, 2); calls(); session.run(); lines = calls()
streams.end(mine)
result([plan(schedule), lines, int(number)])
"""
    )
    *lines, last = lines
    assert last.startswith("captured empty")
    check_calls(plan, lines, origin)
    assert all(line.startswith(("captured", "event_", "malloc")) for line in lines)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_failure_between_fork_and_join(fakes, captured: bool) -> None:
    """A call on a side stream fails: the thread's stream is what it was, what is under way is
    joined, and the next function runs as if nothing had been."""
    symbol_stream, kept, failed, capturing, plan, lines, origin = fakes.run_tvm(
        NETWORK
        + f"""
from convoy.errors import CaptureNotReady, CorruptArtefact
good, schedule = build(conv_us=1.0)
bad, broken = build(broken=True, conv_us=1.0)
x = tensor(); streams = FakeStreams(cuda); calls(); mine = streams.create()
number = calls()[0].split()[1]
streams.use(mine)
vm, other = VirtualMachine(bad, tvm.cuda(0)), VirtualMachine(good, tvm.cuda(0))
other["main"](x)
calls()
try:
    if {captured}:
        function("graph.capture")(vm["main"], [x], 0)
    else:
        vm["main"](x)
    kept = "no failure"
except (CorruptArtefact, CaptureNotReady):
    kept = tvm_ffi.get_raw_stream(tvm_ffi.device("cuda:0")) == mine
failed = calls()
capturing = function("graph.capturing")(0)
other["main"](x)
result([[o.stream for o in broken.ops if o.symbol == "conv"][0], kept, failed, capturing,
        plan(schedule), calls(), int(number)])
"""
    )
    assert symbol_stream != 0
    assert kept is True and capturing is False
    used = {stream for _, stream in launches(failed)}
    waits = [line for line in failed if line.startswith("event_wait")]
    assert len(used) > 1 and waits
    if not captured:
        assert waits[-1].endswith(f"stream={origin}")
    check_calls(plan, lines, origin)


def test_a_graph_may_be_dropped_while_another_thread_captures(fakes) -> None:
    errors, lines = fakes.run_tvm(
        NETWORK
        + """
import threading
from convoy.runtime.library import function
executable, schedule = build()
one = threading.Lock(); barrier = threading.Barrier(3); errors = []
def work():
    with one:
        vm = VirtualMachine(executable, tvm.cuda(0)); x = tensor(); main = vm["main"]; main(x)
    barrier.wait()
    try:
        for _ in range(60):
            launch, made, exchange = function("graph.capture")(main, [x], 0)
            launch()
            del launch, made, exchange
    except Exception as error:
        errors.append(str(error)[:300])
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
result([errors, log()])
""",
        FAKE_CUDA_SLOW_CAPTURE="1",
    )
    assert not errors
    assert not [line for line in lines if "forbidden" in line]
    assert sum("device_synchronize" in line for line in lines) >= 180


EXCHANGE = """
from convoy.runtime.library import function
executable, schedule = build()
vm = VirtualMachine(executable, tvm.cuda(0)); x = tensor(); main = vm["main"]; main(x)
_, made, run = function("graph.capture")(main, [x], 0)
streams = FakeStreams(cuda); other = streams.create()
given, taken, third = tensor(), tensor(), tensor()
expected = given.numpy().tobytes(); size, whole = len(expected), made.numpy().nbytes
address = lambda t: t.data_ptr()
told = ("memcpy_set", "memcpy_node", "memcpy_async", "graph_launch", "child_graph")
kinds = lambda: [one for one in (line.split()[0] for line in calls()) if one in told]
kinds(); done = []; steps = []
for source, target, bytes in ((given, taken, whole), (given, taken, whole), (given, third, whole),
                              (x, taken, 0), (given, third, 16)):
    done.append(run(other, address(source), size, address(target), bytes))
    steps.append(kinds())
bits = lambda t: t.numpy().tobytes()  # of memory that nobody has set
equal = [bits(one)[:whole] == bits(made) for one in (taken, third)] + [bits(x) == expected]
try:
    run(other, address(given), 24)
    short = ""
except ValueError as error:
    short = str(error)
streams.begin(other); kinds()
done.append(run(other, address(x), 24, address(taken), 16))
result([done, steps, short, equal, kinds()])
"""


def test_a_graph_is_launched_between_copies(fakes) -> None:
    """All of it is one graph, in which only addresses that changed are set."""
    done, steps, short, equal, lines = fakes.run_tvm(NETWORK + EXCHANGE)
    launch, copy = ["graph_launch"], ["memcpy_node"]
    between = [*launch, *copy, "child_graph", *copy]
    assert done == [True] * 5 + [False] and "expected a stream and 2 addresses" in short
    assert steps[0] == ["memcpy_set", "memcpy_set", *between]
    assert steps[1] == between
    assert steps[2] == ["memcpy_set", *between]
    assert steps[3] == [*launch, "child_graph"]
    assert steps[4] == ["memcpy_set", "memcpy_set", *between]
    assert equal == [True] * 3 and not lines


def test_copies_that_a_graph_refuses_are_put_on_the_stream(fakes) -> None:
    done, steps, _, equal, lines = fakes.run_tvm(NETWORK + EXCHANGE, FAKE_CUDA_FIXED_COPIES="1")
    called = ["graph_launch", "child_graph"]
    assert done == [True] * 5 + [False] and equal == [True] * 3 and not lines
    assert steps[:4] == [["memcpy_async", *called, "memcpy_async"]] * 3 + [called]


def test_threads_have_streams_of_their_own(fakes) -> None:
    plan, lines = fakes.run_tvm(
        NETWORK
        + """
import threading
executable, schedule = build()
calls(); log()
barrier = threading.Barrier(2); one = threading.Lock()
def work():
    with one:
        vm = VirtualMachine(executable, tvm.cuda(0)); x = tensor()
    barrier.wait()
    for _ in range(5):
        vm["main"](x)
    barrier.wait()  # a thread that ends leaves its streams to the next one
threads = [threading.Thread(target=work) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
result([plan(schedule), log()])
"""
    )
    by_thread: dict[str, list[str]] = {}
    for line in lines:
        thread, call = line.split(" ", 1)
        by_thread.setdefault(thread, []).append(call)
    running = {t: found for t, found in by_thread.items() if launches(found)}
    assert len(running) == 2
    sides = []
    for found in running.values():
        last = [i for i, line in enumerate(found) if "kernel tir_exp" in line][-1]
        sides.append(set(check_calls(plan, found[last:]).values()) - {0})
    assert not sides[0] & sides[1]
