"""Counts of the calls that this process made through Python, per (op, pass, backend).

>>> import traincore as tc
>>> tc.calls.reset()
>>> tc.calls.counts()
{}

After a forward and a backward of RMSNorm on the CPU it is {("rmsnorm", "rmsnorm_forward", "cpu"): 1, ("rmsnorm",
"rmsnorm_backward", "cpu"): 1}. A refused call does not count, and neither do traincore.reference's definitions.
"""

import collections

_counts: collections.Counter = collections.Counter()


def counts() -> dict[tuple[str, str, str], int]:
    """A copy of the counts so far."""
    return dict(_counts)


def count(pass_name: str, backend: str | None = None) -> int:
    """How often one pass ran, on one backend ("cpu", "cuda") or on all of them."""
    return sum(n for (_, name, where), n in _counts.items() if name == pass_name and backend in (None, where))


def reset() -> None:
    """Starts again from nothing."""
    _counts.clear()
