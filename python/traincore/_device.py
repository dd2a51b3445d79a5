"""GPUs, as far as Python needs them: managed memory for Buffers, waiting, and errors that only the device can see.

A kernel that meets a target or position out of range cannot refuse without stopping the device; it skips the row and
sets a bit. `check_device_errors()` waits, reads the bits and raises.
"""

import ctypes
import functools
import weakref

import numpy as np

from . import _arrays, _dtypes
from ._library import lib, pack_exec, raise_for
from .errors import Error

_BITS = {
    1: "a target was neither a class nor ignore_index",
    2: "a position was outside its table",
    4: "cu_seqlens was not a rising sequence from 0 to the length",
    16: "a token id was outside the vocabulary",
}
_OK, _ALREADY_INITIALIZED = 0, -2

_flags: dict[int, tuple] = {}
"""Of each GPU: the array that holds its error bits, the array's framework, its address."""


def error_flags(framework: _arrays.Framework, like) -> int:
    """The address of the error bits of an array's GPU; 0 where its library makes no arrays."""
    index = framework.device_index(like)
    if index not in _flags:
        try:
            flags = framework.zeros(like, (1,), _dtypes.I32)
        except NotImplementedError:
            return 0
        _flags[index] = flags, framework, framework.read(flags).data
    return _flags[index][2]


def check_device_errors() -> None:
    """Waits for the current streams, and raises ValueError if a kernel met a bad index since the last check."""
    found = 0
    for flags, framework, address in _flags.values():
        found |= _read_errors(framework.stream(flags), address)
    if found:
        said = [_BITS.get(1 << i, f"error bit {1 << i}") for i in range(32) if found >> i & 1]
        raise ValueError("on the GPU, " + "; ".join(said))


def _read_errors(stream: int, address: int) -> int:
    bits = ctypes.c_uint32()
    how = pack_exec(stream=stream, device_errors=address)
    if status := lib.tc_read_errors(how, ctypes.byref(bits)):
        raise_for(status)
    return bits.value


@functools.cache
def _context() -> int:
    context = ctypes.c_void_p()
    status = lib.tc_init(ctypes.byref(context))
    if status not in (_OK, _ALREADY_INITIALIZED):
        raise_for(status)
    return context.value


def gpu_count() -> int:
    """GPUs that Buffers may be on; 0 for a build without CUDA, or of a few ops without the kit."""
    return lib.tc_cuda_device_count() if hasattr(lib, "tc_cuda_device_count") else 0


def require_gpu() -> None:
    """Raises where there is no GPU, or the library was built without."""
    if gpu_count() <= 0:
        raise Error("there is no GPU that this library can use: none is visible, or it was built without CUDA")


def managed_memory(size: int) -> np.ndarray:
    """Bytes that the CPU and the GPU both see, freed with the last array that views them."""
    handle, address = ctypes.c_void_p(), ctypes.c_void_p()
    for status in (
        lib.tc_buffer_alloc(ctypes.c_void_p(_context()), ctypes.c_size_t(size), ctypes.byref(handle)),
        lib.tc_buffer_map(handle, ctypes.byref(address)) if handle.value else _OK,
    ):
        if status:
            raise_for(status)
    memory = (ctypes.c_uint8 * size).from_address(address.value)
    weakref.finalize(memory, lib.tc_buffer_free, ctypes.c_void_p(_context()), handle)
    return np.ctypeslib.as_array(memory)


@functools.cache
def _wait_flag() -> np.ndarray:
    flag = managed_memory(4)
    flag[...] = 0
    return flag


def wait(stream: int) -> None:
    """Until the work of a stream is done; 0 is the legacy stream."""
    address = _wait_flag().__array_interface__["data"][0]
    _read_errors(stream, address)
