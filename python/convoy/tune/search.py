"""Search strategies: choose the candidates to measure next."""

from __future__ import annotations

import abc
import random
import zlib
from collections.abc import Sequence

from ..ir.candidate import Candidate
from .task import Task


class Search(abc.ABC):
    """Chooses candidates round by round.

    A choice depends on the tasks' spaces and results alone, never on time or on the order of the
    results: a run that was killed and started again then ends with the same records.
    """

    name: str

    def begin(self) -> None:
        """Prepare the first choice, while spaces are proposed. Optional."""

    @abc.abstractmethod
    def pick(self, tasks: Sequence[Task], count: int) -> list[list[Candidate]]:
        """Return for each task up to ``count`` of its remaining candidates, best first."""


class Exhaustive(Search):
    """Measure all candidates in the order of the space."""

    name = "exhaustive"

    def pick(self, tasks: Sequence[Task], count: int) -> list[list[Candidate]]:
        return [task.remaining()[:count] for task in tasks]


class InOrder(Search):
    """Measure cuDNN's candidates, then those of one backend after another, each in its backend's
    order of preference."""

    name = "order"

    def pick(self, tasks: Sequence[Task], count: int) -> list[list[Candidate]]:
        def order(candidate: Candidate) -> tuple[bool, str, int]:
            return candidate.backend != "cudnn", candidate.backend, candidate.priority

        return [sorted(task.remaining(), key=order)[:count] for task in tasks]


class Random(Search):
    """A random order for each workload, the same for the same seed."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def pick(self, tasks: Sequence[Task], count: int) -> list[list[Candidate]]:
        picks = []
        for task in tasks:
            order = list(task.space.candidates)
            seed = zlib.crc32(f"{self._seed}|{task.workload.key}".encode())
            random.Random(seed).shuffle(order)
            left = set(task.remaining())
            picks.append([candidate for candidate in order if candidate in left][:count])
        return picks
