"""Fitness of the individuals of an evolutionary search: kept in memory and, if wanted, in a file,
so that a search that was stopped continues where it was."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from ..errors import CacheUnwritable

Genes = tuple[int, ...]


class Evaluations:
    """Fitness in microseconds by genes, for one search space.

    The file has one JSON line per evaluation, with the fingerprint of the search space; lines of
    other spaces, and a last line that was cut off, are passed over. A failure is kept as well, as
    infinity: it is not tried again.

    Raises CacheUnwritable if the file cannot be written.
    """

    def __init__(self, fingerprint: str, path: Path | None = None) -> None:
        self._fingerprint, self._path = fingerprint, path
        self._known: dict[Genes, float] = {}
        self.added = 0
        if path is not None and path.is_file():
            self._load(path)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, genes: Sequence[int]) -> float | None:
        """Fitness if known."""
        return self._known.get(tuple(genes))

    def best(self) -> tuple[Genes, float]:
        """Lowest fitness; of equals the one evaluated first."""
        genes = min(self._known, key=self._known.__getitem__)
        return genes, self._known[genes]

    def ranked(self) -> list[tuple[Genes, float]]:
        """Return all evaluated individuals, lowest fitness first; ties in order of evaluation."""
        finite = [(genes, us) for genes, us in self._known.items() if not math.isinf(us)]
        return sorted(finite, key=lambda item: item[1])

    def add(self, genes: Sequence[int], fitness: float, failure: str = "") -> None:
        """Store one evaluation; it is written at once, so that a crash loses nothing."""
        self._known[tuple(genes)] = fitness
        self.added += 1
        if self._path is None:
            return
        line: dict[str, object] = {"space": self._fingerprint, "genes": list(genes)}
        line |= {"failure": failure or "failed"} if math.isinf(fitness) else {"us": fitness}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a+b") as file:
                # A line that was cut off must not swallow the next one.
                if file.tell() and not self._ends_line(file.tell()):
                    file.write(b"\n")
                file.write(json.dumps(line, sort_keys=True).encode() + b"\n")
        except OSError as err:
            raise CacheUnwritable(
                f"{self._path} ({err.strerror})", "a file that can be written", "Name another one"
            ) from None

    def _ends_line(self, size: int) -> bool:
        assert self._path is not None
        with self._path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"

    def _load(self, path: Path) -> None:
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
                if line["space"] == self._fingerprint:
                    self._known[tuple(line["genes"])] = float(line.get("us", math.inf))
            except (ValueError, KeyError, TypeError):
                continue
