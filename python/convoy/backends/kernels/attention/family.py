"""Native attention kernels (compute capability 8.0 to 9.0): see docs/design/attention.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....errors import LibraryMissing
from ....ir.candidate import Candidate, Decline
from ....ir.device import Device
from ....ir.dtypes import HALF_DTYPES
from ....ir.workload import Workload
from .. import kernel as kernels
from .. import toolkit
from ..backend import Family, KernelBackend
from .kernel import MOST_DIM, TILES, AttentionKernel, kernel_from_json

#: In records, plans and ``backends=(...)``.
NAME = "attention"
#: Elements that a thread reads at a time: rows start at multiples of them.
VECTOR = 8
#: Of one workload.
MOST_CANDIDATES = 6

Launch = kernels.Launch[AttentionKernel]


class AttentionBackend(KernelBackend[AttentionKernel]):
    """Without a compiler it proposes the kernels that are compiled already, or none: TVM can run
    the operations one by one."""

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        return self._propose(workload, device, compiled=not _has_compiler())

    def propose_all(
        self, workloads: Sequence[Workload], device: Device, compiled: bool = False
    ) -> list[Sequence[Candidate] | Decline]:
        return super().propose_all(workloads, device, compiled or not _has_compiler())


def _has_compiler() -> bool:
    try:
        toolkit.find_toolkit()
    except LibraryMissing:
        return False
    return True


def attention_backend() -> AttentionBackend:
    """Fused attention in float16 and bfloat16."""
    family = Family(
        name=NAME,
        libraries=("cuda", "kernels"),
        objections=_objections,
        launches=_launches,
        why_not=_why_not,
        workspace_bytes=lambda launch, workload, device: 0,
        kernel_from_json=kernel_from_json,
        limit=MOST_CANDIDATES,
        estimate_us=_estimate_us,
        is_programmatic=lambda kernel: True,
    )
    return AttentionBackend(family)


def blocks(kernel: AttentionKernel, workload: Workload) -> int:
    """Blocks of a launch."""
    return -(-workload.h // kernel.rows) * workload.n * workload.groups


def _padded(size: int) -> int:
    return -(-size // 16) * 16


def _launches(w: Workload, device: Device) -> list[Launch]:
    """A kernel for each tile whose shared memory the GPU has, best guess first."""
    arch = 90 if device.arch == 90 else 80
    dim, value_dim = _padded(w.c // w.groups), _padded(w.k // w.groups)
    found = [AttentionKernel(dim, value_dim, *tile, w.dtype, arch) for tile in TILES]
    fitting = [kernel for kernel in found if kernel.shared_bytes <= device.shared_memory_per_block]
    return sorted(map(Launch, fitting), key=lambda x: (_busy_us(x, w, device), -x.kernel.rows))


#: Of a launch; of a block beside its steps, and of a step beside its multiplications; of those of
#: 64 queries and 64 keys.
_LAUNCH_US, _BLOCK_US, _WAIT_US, _STEP_US = 1.6, 0.8, 0.2, 0.4
#: 16-bit operations of one SM in a second by mma.sync, as these kernels reach them.
_SM_FLOPS = {80: 1.5e12, 86: 0.5e12, 89: 0.7e12, 90: 2.4e12}
_EFFICIENCY = 0.7


def _estimate_us(launch: Launch, w: Workload, device: Device) -> float:
    """Time of a launch: that of its waves, its arithmetic or its bytes, whichever is most."""
    nearest = min(_SM_FLOPS, key=lambda arch: abs(arch - device.arch))
    flops = _SM_FLOPS[nearest] * min(device.sm_count, blocks(launch.kernel, w))
    moved = w.bytes_moved / (_EFFICIENCY * device.memory_bandwidth)
    seconds = max(w.flops / flops, moved)
    return _LAUNCH_US + max(_busy_us(launch, w, device), seconds * 1e6)


def _busy_us(launch: Launch, w: Workload, device: Device) -> float:
    """Waves of blocks, by the steps of a block and what it does beside them. Four warps make a step
    of 64 queries; an SM holds about eight of them at once, and what is resident alone does not fill
    it."""
    kernel = launch.kernel
    steps = -(-w.w // kernel.key_tile)
    waves = -(-blocks(kernel, w) * (kernel.threads // 128) // (3 * device.sm_count))
    share = min(1.0, blocks(kernel, w) / device.sm_count)
    step = kernel.rows / 64 * max(0.5, share) * kernel.key_tile / 64
    return waves * (steps * (_WAIT_US + _STEP_US * step) + _BLOCK_US)


def _why_not(launch: Launch, w: Workload, device: Device) -> str:
    if launch.kernel in (possible.kernel for possible in _launches(w, device)):
        return ""
    return f"{launch.kernel.name} is compiled for other sizes, another dtype or another GPU"


def _objections(w: Workload, device: Device) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of everything that rules the kernels out, most telling first."""
    if w.attention is None:
        yield f"op {w.op}: only attention", "use the cudnn or cutlass backend"
        return
    if not 80 <= device.arch <= 90:
        yield f"architecture sm_{device.arch}: kernels are compiled for sm_80 to sm_90", ""
    if w.dtype not in HALF_DTYPES or w.out_dtype != w.dtype:
        yield f"{w.dtype} in, {w.out_dtype} out: both must be float16 or bfloat16", ""
    if w.acc_dtype != "float32":
        yield f"acc_dtype {w.acc_dtype}: kernels accumulate in float32", ""
    for name, size in (("q and k", w.c // w.groups), ("v", w.k // w.groups)):
        if size > MOST_DIM or size % VECTOR:
            yield f"heads of {size} elements in {name}", f"multiples of {VECTOR} to {MOST_DIM}"
    a = w.attention
    for name, view in (("q", a.q), ("k", a.k), ("v", a.v), ("o", a.o)):
        if not view.is_aligned(VECTOR):
            yield f"rows of {name} that start between multiples of {VECTOR} elements", ""
    if a.bias.shape and a.bias_dtype not in (w.dtype, "float32"):
        yield f"a bias in {a.bias_dtype} for {w.dtype}", "a bias of the same dtype or float32"
