"""A build's entry in the cache."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm

from .. import paths
from ..ir.workload import Workload
from ..runtime.compiled import CompiledModule
from .key import build_key
from .source import Source
from .store import ModuleCache

if TYPE_CHECKING:
    from ..graph.bind import Params

_log = logging.getLogger("convoy")


@dataclass(frozen=True)
class CachedBuild:
    """A build's key, None if it is not cached, and the record file that it reads."""

    key: str | None
    records: Path

    @classmethod
    def of(
        cls,
        network: Sequence[Source],
        target: str | tvm.target.Target,
        params: Params | None,
        options: Mapping[str, Any],
        cache: bool,
    ) -> CachedBuild:
        """The entry of a build; arguments as :func:`build_key`, none without ``cache``."""
        records = Path(options.get("records") or paths.user_records_file())
        return cls(build_key(network, target, params, options) if cache else None, records)

    def module(self) -> CompiledModule | None:
        """The module of an earlier build. Raises CacheUntrusted."""
        found = None if self.key is None else ModuleCache().get(self.key, self.records)
        if found is not None:
            _log.info("the module of an earlier build is taken")
        return found

    def keep(
        self, module: CompiledModule, workloads: Collection[Workload] | None
    ) -> CompiledModule:
        """Store a module and return it; arguments as :meth:`ModuleCache.put`."""
        if self.key is not None:
            ModuleCache().put(self.key, module, self.records, workloads)
        return module
