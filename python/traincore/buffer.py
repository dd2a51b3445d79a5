"""traincore.Buffer: an array that every face reads and that the explicit pairs return."""

import math
import os

import numpy as np

from . import _arrays, _device, _dtypes
from ._library import CPU, DEVICES
from .errors import Unsupported

_ALIGNMENT = 64


def _allocate(shape: tuple[int, ...], dtype: int, device: str) -> np.ndarray:
    """Dense memory, aligned for vectors, that the device reads; bf16 as int16."""
    kept_as = np.dtype(np.int16) if dtype == _dtypes.BF16 else _dtypes.to_numpy(dtype)
    count = math.prod(shape)
    if device == "cuda":
        raw = _device.managed_memory(max(count * kept_as.itemsize, 1))
    else:
        raw = np.empty(count * kept_as.itemsize + _ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % _ALIGNMENT
    return raw[start : start + count * kept_as.itemsize].view(kept_as).reshape(shape)


class _HostMemory:
    """Another library's memory on the CPU as NumPy reads it, bf16 as int16; an array made from it keeps it alive."""

    def __init__(self, view: _arrays.View, owner):
        kept_as = np.dtype(np.int16) if view.dtype == _dtypes.BF16 else _dtypes.to_numpy(view.dtype)
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "typestr": kept_as.str, "data": (view.data, False), "shape": tuple(view.shape),
            "strides": tuple(stride * kept_as.itemsize for stride in view.strides),
        }  # fmt: skip


def _shape_of(shape) -> tuple[int, ...]:
    try:
        extents = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(int, shape))
    except (TypeError, ValueError):
        raise TypeError(f"shape is {shape!r}, expected an integer or a sequence of integers") from None
    if any(extent < 0 for extent in extents):
        raise ValueError(f"shape is {extents}, but an extent is at least 0")
    if len(extents) > _arrays.MAX_RANK:
        raise ValueError(f"shape has {len(extents)} dimensions, but a tensor has at most {_arrays.MAX_RANK}")
    return extents


def default_device() -> str:
    """Where NumPy arguments go: the environment variable TRAINCORE_DEVICE, or the CPU."""
    return os.environ.get("TRAINCORE_DEVICE", "cpu")


def checked_device(device: str | None) -> str:
    """A device's name, the default for None; refused if there is none of that name."""
    device = default_device() if device is None else device
    if device not in DEVICES:
        raise ValueError(f"device is {device!r}, expected one of {', '.join(map(repr, DEVICES))}")
    if device == "cuda":
        _device.require_gpu()
    return device


class Buffer:
    """A dense array of f32, f16, bf16, f64, bool or an integer dtype: `Buffer(shape, dtype=np.float32, device=None)`.

    The memory is not initialised; `Buffer.zeros` clears it and `Buffer.from_numpy` copies an array. The dtype is a NumPy
    dtype or a name such as "bf16". `numpy()` is a view of the same memory, so writing to it changes the Buffer.
    """

    __slots__ = ("_owner", "_stream", "_view")
    __array_priority__ = 1000

    def __init__(self, shape, dtype=np.float32, device=None):
        shape, code, device = _shape_of(shape), _dtypes.parse(dtype), checked_device(device)
        self._set(_allocate(shape, code, device), code, DEVICES[device])

    def _set(self, owner, code: int | None = None, device: int = CPU) -> None:
        view = _arrays.framework_of(type(owner)).read(owner)
        if isinstance(owner, np.ndarray):
            view = view._replace(dtype=view.dtype if code is None else code, device=device)
        self._owner, self._view, self._stream = owner, view, 0

    @classmethod
    def wrap(cls, array) -> "Buffer":
        """A Buffer on the memory of another library's array, which it keeps alive."""
        buffer = cls.__new__(cls)
        view = _arrays.framework_of(type(array)).read(array)
        if view.device == CPU and not isinstance(array, np.ndarray):
            array = np.asarray(_HostMemory(view, array))
        buffer._set(array, view.dtype)
        return buffer

    @classmethod
    def empty(cls, shape, dtype=np.float32, device=None) -> "Buffer":
        return cls(shape, dtype, device)

    @classmethod
    def zeros(cls, shape, dtype=np.float32, device=None) -> "Buffer":
        buffer = cls(shape, dtype, device)
        buffer._owner[...] = 0
        return buffer

    @classmethod
    def from_numpy(cls, array, device=None) -> "Buffer":
        """A dense copy of a NumPy array."""
        if not isinstance(array, (np.ndarray, np.generic)) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"array is a {type(array).__name__}, expected a NumPy array")
        code = _dtypes.of_numpy(array.dtype)
        if code is None:
            raise TypeError(f"array has dtype {array.dtype}, which no kernel reads")
        buffer = cls(array.shape, _dtypes.NAMES[code], device)
        buffer._owner[...] = array.view(np.int16) if code == _dtypes.BF16 else array
        return buffer

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._view.shape)

    @property
    def dtype(self) -> np.dtype:
        return _dtypes.to_numpy(self._view.dtype)

    @property
    def nbytes(self) -> int:
        count = _dtypes.SIZES[self._view.dtype]
        for extent in self._view.shape:
            count *= extent
        return count

    @property
    def device(self) -> str:
        return "cuda" if self._view.device else "cpu"

    def _wait(self) -> None:
        if self._view.device and isinstance(self._owner, np.ndarray):
            _device.wait(self._stream)

    def numpy(self) -> np.ndarray:
        """A writable view of the same memory, which it keeps alive; waits for the work that writes it."""
        if not isinstance(self._owner, np.ndarray):
            raise Unsupported(
                "this Buffer holds another library's GPU memory, which NumPy cannot see; read it by DLPack"
            )
        self._wait()
        if self._view.dtype == _dtypes.BF16:
            return self._owner.view(self.dtype)
        return self._owner

    def reshaped(self, shape) -> "Buffer":
        """The same memory in another shape of as many elements."""
        buffer = type(self).__new__(type(self))
        buffer._set(self._owner.reshape(shape), self._view.dtype, self._view.device)
        buffer._stream = self._stream
        return buffer

    def __dlpack__(self, **options):
        self._wait()  # managed memory is handed over as the host's
        if self._view.dtype == _dtypes.BF16 and isinstance(self._owner, np.ndarray):
            raise BufferError("NumPy memory of dtype bf16 has no DLPack export; read it with numpy() and ml_dtypes")
        return self._owner.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._owner.__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __len__(self) -> int:
        if not self._view.shape:
            raise TypeError("len() of a Buffer of shape ()")
        return self._view.shape[0]

    def __repr__(self) -> str:
        return f"Buffer(shape={self.shape}, dtype={_dtypes.NAMES[self._view.dtype]}, device={self.device!r})"


class _Buffers(_arrays.Framework):
    def read(self, array: Buffer) -> _arrays.View:
        return array._view

    def empty(self, like: Buffer, shape, dtype):
        if isinstance(like._owner, np.ndarray):
            return Buffer(shape, _dtypes.NAMES[dtype], like.device)
        return Buffer.wrap(self._owner_framework(like).empty(like._owner, shape, dtype))

    def zeros(self, like: Buffer, shape, dtype):
        if isinstance(like._owner, np.ndarray):
            return Buffer.zeros(shape, _dtypes.NAMES[dtype], like.device)
        return Buffer.wrap(self._owner_framework(like).zeros(like._owner, shape, dtype))

    def stream(self, array: Buffer) -> int:
        return 0 if isinstance(array._owner, np.ndarray) else self._owner_framework(array).stream(array._owner)

    def wrote(self, array: Buffer, stream: int) -> None:
        array._stream = stream

    @staticmethod
    def _owner_framework(array: Buffer) -> _arrays.Framework:
        return _arrays.framework_of(type(array._owner))


_arrays.register(Buffer, _Buffers())
