"""Serve networks from several threads for a while: outputs are checked, memory must stay flat.

    python tests/gpu/sanitize.py build FOLDER --networks unet vit
    python tests/gpu/soak.py FOLDER --seconds 480

Each thread makes a session of one of the modules, runs it 50 to 500 times on new inputs, of which
it checks the known ones, and drops it. Prints device and host memory over time, and the verdict.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np

import convoy

#: Growth that is not a leak: pools and arenas of threads, in MiB.
ALLOWED_MIB = 64


def host_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def device_mib() -> float:
    """Memory of the GPU in use, by all processes; 0 without one."""
    from convoy.bench import memory
    from convoy.runtime import present_device

    return memory.used_bytes("cuda") / 2**20 if present_device() else 0.0


class Soak:
    """Counts of what the threads did, and what went wrong."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.modules = [
            (convoy.load(p), dict(np.load(p.with_suffix(".npz")))) for p in self.files(folder)
        ]
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.runs = self.sessions = 0
        self.wrong: list[str] = []

    @staticmethod
    def files(folder: Path) -> list[Path]:
        found = sorted(folder.glob("*.so"))
        if not found:
            raise SystemExit(f"no modules in {folder}")
        return found

    def serve(self, seed: int) -> None:
        rng = random.Random(seed)
        try:
            while time.monotonic() < self.end:
                self.session(rng)
        except Exception as err:
            self.wrong.append(f"thread {seed}: {type(err).__name__}: {str(err)[:300]}")

    def session(self, rng: random.Random) -> None:
        module, arrays = rng.choice(self.modules)
        inputs = [arrays[name] for name in arrays if name[0] == "x"]
        wants = [arrays[name] for name in arrays if name[0] == "y"]
        session, left = module.session(), rng.randint(50, 500)
        while left > 0 and time.monotonic() < self.end:
            scale = rng.choice((1, 1, -0.5))  # other inputs between: nothing is left of a run
            outputs = session(*[(x * scale).astype(x.dtype) for x in inputs])
            if scale == 1:
                for got, want in zip(outputs, wants, strict=True):
                    error = float(np.linalg.norm(got.astype("f8") - want) / np.linalg.norm(want))
                    if not error < 2e-2:
                        self.wrong.append(f"relative error {error:.1e}")
            left -= 1
            with self.lock:
                self.runs += 1
        with self.lock:
            self.sessions += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    if options.seconds <= 0:
        parser.error(f"--seconds is {options.seconds:g}: no time is left to run anything")
    soak = Soak(options.folder, options.seconds)
    threads = [threading.Thread(target=soak.serve, args=(i,)) for i in range(options.threads)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    memory: list[tuple[float, float, float]] = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(10.0, options.seconds / 12))
        if soak.end > time.monotonic():
            memory.append((time.monotonic() - start, device_mib(), host_mib()))
    for thread in threads:
        thread.join()
    if not soak.sessions or len(memory) < 3:
        problem = f"{soak.sessions} sessions and {len(memory)} readings of memory: no verdict"
        print(problem, f"{soak.runs} runs, {len(soak.wrong)} wrong", *soak.wrong[:5], sep="\n")
        return True
    settled = memory[len(memory) // 3 :]  # pools are filled by then
    grown = [max(column) - column[0] for column in list(zip(*settled, strict=True))[1:]]
    for seconds, device, host in memory[:: max(1, len(memory) // 8)]:
        print(f"{seconds:6.0f} s  device {device:8.0f} MiB  host {host:8.0f} MiB")
    bad = bool(soak.wrong) or any(mib > ALLOWED_MIB for mib in grown)
    print(
        f"{soak.runs} runs, {soak.sessions} sessions, {len(soak.wrong)} wrong, grown by "
        f"{grown[0]:.0f} MiB on the device and {grown[1]:.0f} MiB on the host",
        *soak.wrong[:5], sep="\n",
    )  # fmt: skip
    return bad


if __name__ == "__main__":
    sys.exit(main())
