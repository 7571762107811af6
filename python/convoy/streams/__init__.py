"""Assign the operators of a lowered function to CUDA streams, and plan their storage.

:func:`~convoy.streams.schedule.schedule` gets a lowered function and its plan. It finds durations
and occupancies, simulates schedules, and returns a :class:`~convoy.streams.schedule.Timing`, which
:mod:`.link` compiles. See docs/design/streams.md.
"""
