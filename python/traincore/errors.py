"""What a refused call raises.

The library answers with a status and one sentence; the sentence is the message, the status chooses the exception:
wrong dtypes are TypeError, wrong shapes and values ValueError, lack of memory MemoryError, a valid request that no
kernel serves Unsupported, and everything else Error.
"""


class Error(RuntimeError):
    """The library failed: no such device, a kernel that could not be launched, or a fault of its own."""


class Unsupported(Error, NotImplementedError):
    """A valid request that no kernel serves; the message names what is served."""


_BY_STATUS = {-5: TypeError, -6: ValueError, -7: ValueError, -8: MemoryError, -9: Unsupported}


def exception(status: int, sentence: str) -> Exception:
    """The exception that stands for a status of the C library."""
    return _BY_STATUS.get(status, Error)(sentence)
