"""Search spaces of a run: candidates of its backends, optionally only compiled ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..backends import registry
from ..backends.base import Backend
from ..ir.candidate import Candidate
from ..ir.workload import Workload
from .executor import Executor
from .space import Space, propose


class Proposer:
    """Proposes candidates of backends for the GPU of an executor.

    Args:
        backends: Are asked in this order.
        executor: Its ``device`` is what candidates are proposed for.
        kernel: Names the library to compile for a candidate; empty for none.
        compiled_only: Leave out kernels that are not in the cache of compiled kernels.
        neighbours: Whether :meth:`around` returns any candidate.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        executor: Executor,
        kernel: Callable[[Candidate], str],
        compiled_only: bool,
        neighbours: bool,
    ) -> None:
        self._backends, self._executor = backends, executor
        self._kernel = kernel
        self._compiled_only, self._neighbours = compiled_only, neighbours
        self._compiled: dict[str, bool] = {}

    def space(self, workload: Workload) -> Space:
        """Return the search space of a workload."""
        return propose(workload, self._backends, self._executor.device, self._usable)

    def around(self, workload: Workload, candidate: Candidate) -> list[Candidate]:
        """Return configurations near a candidate, which its backend does not propose itself."""
        if not self._neighbours:
            return []
        backend = registry.get(candidate.backend)
        found = backend.neighbours(workload, candidate, self._executor.device)
        return list(filter(self._usable, found))

    def _usable(self, candidate: Candidate) -> bool:
        name = self._kernel(candidate)
        if not self._compiled_only or not name:
            return True
        if name not in self._compiled:
            self._compiled[name] = registry.get(candidate.backend).is_ready(candidate)
        return self._compiled[name]
