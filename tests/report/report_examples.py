"""A small plan with a schedule of two streams, made by hand, for the tests of reports."""

from __future__ import annotations

from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.ir.plan import Choice, Plan
from convoy.ir.schedule import Schedule
from convoy.ir.schedule_parts import ORIGIN, Buffer, Event, MemoryPlan, Occupancy, Op
from convoy.ir.workload import Workload


def conv(**changes: object) -> Workload:
    fields: dict[str, object] = {"op": "fprop", "n": 1, "h": 14, "w": 14, "c": 64, "k": 96}
    fields |= {"r": 3, "s": 3, "padding": (1, 1, 1, 1)}
    return Workload(**{**fields, **changes})  # type: ignore[arg-type]


def scored(backend: str, kernel: str, kernel_us: float, enqueue_us: float, e2e_us: float) -> Offer:
    measured = Measurement(kernel_us=kernel_us, enqueue_us=enqueue_us, e2e_us=e2e_us)
    return Offer(Candidate(backend, kernel), measured)


def plan() -> Plan:
    """Two convolutions. The first one's winner in the graph would lose when synchronized; for the
    second one a backend declines."""
    fast = scored("cudnn", "eng5_k2=1", 4.0, 6.0, 12.0)
    light = scored("cutlass", "sm90_conv_64x64x64", 5.0, 2.0, 9.0)
    other = scored("cutlass", "sm80_conv_64x64x32", 3.0, 2.0, 8.0)
    return Plan(
        objective="graph",
        device=Device(),
        choices=(
            Choice("lv#0", conv(epilogue=Epilogue(bias=True)), fast, light, (fast, light)),
            Choice(
                "lv1#0",
                conv(r=1, s=1, padding=(0, 0, 0, 0)),
                other,
                None,
                (other,),
                (Decline("hopper", "C = 64 <is> not a <script>stem</script>", "Use cutlass."),),
                7,
            ),
        ),
        source="recorded",
    )


def schedule() -> Schedule:
    """A copy in, the two convolutions side by side, and a concatenation behind both."""

    def op(name: str, start: float, end: float, stream: int, **more: object) -> Op:
        fields: dict[str, object] = {"kind": "native", **more}
        return Op(
            name=f"{name}#0",
            symbol=name,
            duration_us=end - start,
            stream=stream,
            start_us=start,
            end_us=end,
            **fields,  # type: ignore[arg-type]
        )

    symbols = list(plan().functions())
    known = {"kind": "offloaded", "source": "recorded", "occupancy": Occupancy(66, 256, 9000, 0.5)}
    ops = (
        op("fused_cast_transpose", 0, 2, 0),
        op(symbols[0], 2, 6, 0, kernel="cudnn:eng5_k2=1", depends=(0,), **known),
        op(symbols[1], 2.5, 5.5, 1, kernel="cutlass:sm80", depends=(0,), **known),
        op("fused_concatenate1", 6.5, 8, 0, depends=(1, 2)),
    )
    memory = MemoryPlan(
        buffers=(
            Buffer("alloc", 0, 1024, (0,), (1, 2)),
            Buffer("alloc1", 1024, 2048, (1,), (3,)),
            Buffer("alloc2", 3072, 512, (2,), (3,)),
        ),
        peak_bytes=3584,
        single_stream_bytes=3328,
        total_bytes=3584,
    )
    events = (Event(ORIGIN, 2), Event(0, 2), Event(2, 3))
    return Schedule(ops, events, memory, makespan_us=8.0, single_us=10.5, note="by hand")
