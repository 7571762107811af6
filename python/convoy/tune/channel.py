"""Requests to a child process and its answers: JSON lines through two pipes."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any


class Channel:
    """The parent's end of two pipes. ``child_fds`` are the ends that the child inherits.

    Standard output stays free for whatever the child's libraries print.
    """

    def __init__(self) -> None:
        read_requests, write_requests = os.pipe()
        self._answers, write_answers = os.pipe()
        self._requests = os.fdopen(write_requests, "wb")
        self._unread = b""
        self.child_fds = (read_requests, write_answers)

    def close_child_fds(self) -> None:
        """Close this process's copies once the child has its own: its end then ends the pipes."""
        for fd in self.child_fds:
            os.close(fd)

    def ask(self, timeout_s: float, **request: object) -> dict[str, Any] | None:
        """Send a request and wait for the answer; None when the child has ended.

        Raises:
            TimeoutError: No answer in time.
            BrokenPipeError: The child ended before it could read.
        """
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._requests.flush()
        return self.receive(timeout_s)

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """Wait for the next answer; None when the child has ended. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError
            received = os.read(self._answers, 1 << 16)
            if not received:
                return None
            self._unread += received
        line, self._unread = self._unread.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close_requests(self) -> None:
        """End the requests, which ends a child that works as it should."""
        self._requests.close()

    def close_answers(self) -> None:
        """Close the pipe of answers, once the child is gone."""
        os.close(self._answers)
