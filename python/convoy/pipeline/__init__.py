"""The pipeline from a Relax module to a compiled one.

=========  ==============================  ====================================================
step       from                            to
=========  ==============================  ====================================================
normalize  a Relax module                  its normal forms
partition  a normal form                   a :class:`MatchGraph` of all subgraphs that match
price      match graphs, backends, costs   :class:`Offers` by workload
select     match graphs, offers            a :class:`Placement` with its :class:`Plan`
lower      a placement                     :class:`Lowered`: calls of kernels and of functions
schedule   lowered calls, the plan         a :class:`Timing`: streams, events, storage
link       lowered calls, the timing       a :class:`CompiledModule`
=========  ==============================  ====================================================

:func:`place` ends with select, :func:`compile_placement` begins with lower, :func:`build` does
both. Only select chooses kernels: where the scheduler measures that they do not suit its streams,
it says so, and the placement for one stream is compiled.
"""

from .executable import compile_placement
from .inquiries import predict_schedule, workloads_of
from .network import build, build_sources, place
from .options import find_backends

__all__ = [
    "build",
    "build_sources",
    "compile_placement",
    "find_backends",
    "place",
    "predict_schedule",
    "workloads_of",
]
