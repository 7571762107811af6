"""What it costs to bring a value from one form (layout, dtype) into another.

A transition is a launch of its own and therefore has the same three figures as a kernel. One
transition serves all consumers that want the same form of a value, so the placer charges each
(value, form) once.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import DTYPE_BYTES
from ..partition.match_graph import Form


class Transitions(abc.ABC):
    """Gives the figures of a transition; the placer asks nothing else of it."""

    @abc.abstractmethod
    def figure(self, elements: int, source: Form, target: Form) -> Measurement | None:
        """Figures for a value of so many elements; None where there is no such transition.

        Never asked for ``source == target``, which costs nothing.
        """

    def between(self, elements: int, source: Form, target: Form) -> Measurement | None:
        """As :meth:`figure`, and free where nothing has to be done.

        An empty layout or dtype on either side fits any.
        """
        layout = source.layout == target.layout or not (source.layout and target.layout)
        dtype = source.dtype == target.dtype or not (source.dtype and target.dtype)
        if layout and dtype:
            return FREE
        return self.figure(elements, source, target)


FREE = Measurement(kernel_us=0.0, enqueue_us=0.0, e2e_us=0.0)


class NoTransitions(Transitions):
    """All matches must agree on the form of the values between them."""

    def figure(self, elements: int, source: Form, target: Form) -> Measurement | None:
        return None


class TableTransitions(Transitions):
    """Measured figures by (source, target), whatever the size."""

    def __init__(self, table: Mapping[tuple[Form, Form], Measurement]) -> None:
        self._table = dict(table)

    def figure(self, elements: int, source: Form, target: Form) -> Measurement | None:
        return self._table.get((source, target))


@dataclass(frozen=True)
class BandwidthTransitions(Transitions):
    """Predicted: every element is read once and written once.

    ``kernel_us = launch_us + elements * (bytes read + bytes written) / bytes_per_us``, the
    memory bound of the roofline model (Williams, Waterman, Patterson, CACM 2009) with a fixed
    cost for the launch; ``e2e_us`` adds the time of a synchronisation.

    Nothing here is measured: a transposing kernel is assumed to reach three quarters of the
    bandwidth of a copy (the default is an H200's), the host times are those of any small launch.
    """

    bytes_per_us: float = 3.2e6
    launch_us: float = 1.5
    enqueue_us: float = 2.5
    synchronise_us: float = 6.0

    @classmethod
    def on(cls, device: Device) -> BandwidthTransitions:
        """Transitions on a device."""
        return cls(bytes_per_us=0.75e-6 * device.memory_bandwidth)

    def figure(self, elements: int, source: Form, target: Form) -> Measurement | None:
        sizes = [DTYPE_BYTES.get(form.dtype, 4) for form in (source, target)]
        kernel = self.launch_us + elements * sum(sizes) / self.bytes_per_us
        return Measurement(
            kernel_us=kernel,
            enqueue_us=self.enqueue_us,
            e2e_us=kernel + self.enqueue_us + self.synchronise_us,
        )
