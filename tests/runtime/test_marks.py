"""Marks of a timeline against the recording stand-in for CUDA, eagerly and in a captured graph."""

from __future__ import annotations

from support import Fakes


def test_marks_are_events_outside_and_nodes_inside_of_a_capture(fakes: Fakes) -> None:
    eager, captured, first, second, missing = fakes.run(
        """
        load_runtime()
        streams = FakeStreams(cuda)
        stream = streams.create()
        mark, times = function("marks.create")(4, 0)
        streams.use(stream)
        mark(0); mark(1)
        eager = list(times())
        log()
        streams.begin(stream)
        for i in range(3):
            mark(i)
        graph = streams.end(stream)
        captured = [line.split(" ", 1)[1] for line in log()]
        streams.launch(graph)
        first = list(times())
        for _ in range(100):  # the clock is too coarse to tell any two replays apart
            streams.launch(graph)
            second = list(times())
            if second[:3] != first[:3]:
                break
        missing = [t != t for t in second]
        result([eager[:2], captured, first[:3], second[:3], missing])
        """
    )
    assert eager[0] == 0 and eager[1] >= 0
    assert [line for line in captured if "event_record" in line] == [
        "captured event_record stream=1"
    ] * 3
    for times in (first, second):
        assert times[0] == 0 and times == sorted(times)
    assert first != second, "each replay passes the marks anew"
    assert missing == [False, False, False, True]


def test_mark_that_does_not_exist_is_an_error(fakes: Fakes) -> None:
    message = fakes.run(
        """
        load_runtime()
        mark, times = function("marks.create")(2, 0)
        try:
            mark(2)
        except ValueError as err:
            result(str(err))
        """
    )
    assert "mark 2 of 2" in message
