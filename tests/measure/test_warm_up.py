"""Libraries are loaded while something else runs; what cannot be loaded is left alone."""

from convoy.errors import LibraryMissing
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.measure import warm_up as room
from convoy.measure.warm_up import warm_up


class Listed:
    """A backend with the given answer to any workload."""

    def __init__(self, name, answer):
        self.name, self.answer = name, answer

    def accepts(self, workload, device):
        return None

    def propose_all(self, workloads, device, compiled=False):
        assert compiled, "a compiler runs for seconds"
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer] * len(workloads)


def test_each_backend_runs_its_first_candidate_whatever_another_does(monkeypatch):
    ran = []

    def load(backend, workload, candidate, device):
        if candidate.kernel == "broken":
            raise RuntimeError("no such engine")
        return lambda *tensors: ran.append((backend.name, candidate.kernel))

    monkeypatch.setattr(room, "load_candidate", load)
    monkeypatch.setattr(room, "make_problem", lambda workload, rng: type("P", (), {"tensors": ()}))
    monkeypatch.setattr(room, "function", lambda name: lambda *arguments: None)
    first, second = Candidate("a", "k0"), Candidate("a", "k1")
    backends = [
        Listed("missing", LibraryMissing("no library", "one", "install it")),
        Listed("declines", Decline("declines", "a reason", "nothing")),
        Listed("broken", [Candidate("broken", "broken")]),
        Listed("a", [first, second]),
    ]
    with warm_up(backends, Device()):
        pass
    assert ran == [("a", "k0")]
