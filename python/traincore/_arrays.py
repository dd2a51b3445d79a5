"""Arrays of every framework, seen as memory: where it is, its shape, strides, dtype and device. Nothing is copied.

A Framework reads the arrays of one library and makes new ones. `framework_of` finds it from an array's type; PyTorch
and CuPy are never imported for that, since whoever passes such an array has imported them.
"""

import functools
import struct
import sys
import typing

import numpy as np

from . import _dtypes, _plans
from ._library import CPU, CUDA, capsule_pointer, lib, raise_for

TENSOR_BYTES = 152  # sizeof(tc_tensor)
MAX_RANK = 8
_READ = struct.Struct("=Q8q8q4i")
# tc_tensor of each rank: data, shape[8], stride[8], rank, dtype, device, device_index.
_WRITE = [struct.Struct(f"=Q{r}q{64 - 8 * r}x{r}q{64 - 8 * r}x4i") for r in range(MAX_RANK + 1)]


class View(typing.NamedTuple):
    """One array's memory. Strides count elements."""

    data: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: int
    device: int = CPU
    index: int = 0


def write(view: View, args, offset: int) -> None:
    """Puts a view at args + offset as a tc_tensor."""
    data, shape, strides, dtype, device, index = view
    rank = len(shape)
    if rank > MAX_RANK:
        raise ValueError(f"it has {rank} dimensions, but a tensor has at most {MAX_RANK}")
    _WRITE[rank].pack_into(args, offset, data, *shape, *strides, rank, dtype, device, index)


def read_back(args, offset: int) -> View:
    """The view that a tc_tensor at args + offset describes."""
    values = _READ.unpack_from(args, offset)
    rank, dtype, device, index = values[17:]
    return View(values[0], values[1 : 1 + rank], values[9 : 9 + rank], dtype, device, index)


class Framework:
    """How the arrays of one library are read, made and ordered."""

    has_streams = False  # whether the library has a current stream, on which its memory is ordered

    def read(self, array) -> View:
        raise NotImplementedError

    def require_writable(self, array) -> None:
        """Raises for an array that must not be written to."""

    def empty(self, like, shape: tuple[int, ...], dtype: int):
        """A new dense array on the device of `like`."""
        raise NotImplementedError

    def zeros(self, like, shape: tuple[int, ...], dtype: int):
        """As empty, of zeros; for small arrays."""
        raise NotImplementedError

    def wrote(self, array, stream: int) -> None:
        """Told after a call that wrote to an array on a GPU."""

    def on_cpu(self, array) -> bool:
        return self.read(array).device == CPU

    def dtype(self, array) -> int:
        return self.read(array).dtype

    def device_index(self, array) -> int:
        return self.read(array).index

    def stream(self, array) -> int:
        """The caller's current stream on the array's device, which is a GPU."""
        return 0


class NumPy(Framework):
    def read(self, array) -> View:
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError("it is a masked array, and its mask would be ignored; pass array.filled(value)")
        dtype = _dtypes.of_numpy(array.dtype)
        if dtype is None:
            raise TypeError(f"it has dtype {array.dtype}, which no kernel reads")
        size = array.itemsize
        if any(stride % size for stride in array.strides):
            raise ValueError(f"its strides {array.strides} are no multiples of its element size {size}")
        strides = tuple(stride // size for stride in array.strides)
        return View(array.__array_interface__["data"][0], array.shape, strides, dtype)

    def require_writable(self, array) -> None:
        if isinstance(array, np.generic) or not array.flags.writeable:
            raise ValueError("it is read-only")

    def empty(self, like, shape, dtype):
        return np.empty(shape, _dtypes.to_numpy(dtype))

    def on_cpu(self, array) -> bool:
        return True

    def dtype(self, array) -> int:
        code = _dtypes.of_numpy(array.dtype)
        return self.read(array).dtype if code is None else code


class Torch(Framework):
    """PyTorch tensors, whatever their device. Autograd does not see these calls: traincore.torch is what it sees."""

    has_streams = True

    def __init__(self):
        self.torch = torch = sys.modules["torch"]
        codes = {
            "float16": _dtypes.F16, "bfloat16": _dtypes.BF16, "float32": _dtypes.F32, "float64": _dtypes.F64,
            "int8": _dtypes.I8, "int16": _dtypes.I16, "int32": _dtypes.I32, "int64": _dtypes.I64,
            "uint8": _dtypes.U8, "bool": _dtypes.BOOL,
        }  # fmt: skip
        self.codes = {getattr(torch, name): code for name, code in codes.items()}
        self.dtypes = {code: dtype for dtype, code in self.codes.items()}
        self.devices = {torch.device("cpu"): (CPU, 0)}
        self.raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        for kind in (torch.Tensor, torch.nn.Parameter):
            capsule_makers[kind] = self._capsule
            _plans.tensor_types.add(kind)

    def _capsule(self, array):
        if array.is_neg():
            raise TypeError  # read() says why
        return self.torch.utils.dlpack.to_dlpack(array)

    def read(self, array) -> View:
        device = self.devices.get(array.device) or self._device(array)
        if array.is_neg():
            raise TypeError("its elements are negated only when PyTorch reads them; pass x.resolve_neg()")
        dtype = self.dtype(array)
        if array.layout is not self.torch.strided:
            raise TypeError(f"it is a {array.layout} tensor, but kernels read strided ones; pass x.to_dense()")
        return View(array.data_ptr(), array.shape, array.stride(), dtype, *device)

    def _device(self, array) -> tuple[int, int]:
        device = array.device
        if device.type != "cuda":
            raise TypeError(f"it is on device {device}, but kernels run on cpu and cuda")
        self.devices[device] = CUDA, device.index
        return self.devices[device]

    def empty(self, like, shape, dtype):
        # A shape given by name is read in half the time.
        return like.new_empty(size=shape, dtype=self.dtypes[dtype])

    def zeros(self, like, shape, dtype):
        return like.new_zeros(size=shape, dtype=self.dtypes[dtype])

    def on_cpu(self, array) -> bool:
        return array.is_cpu

    def dtype(self, array) -> int:
        code = self.codes.get(array.dtype)
        if code is None:
            raise TypeError(f"it has dtype {array.dtype}, which no kernel reads")
        return code

    def device_index(self, array) -> int:
        return array.get_device()

    def stream(self, array) -> int:
        return self.raw_stream(array.get_device())


class CuPy(Framework):
    has_streams = True

    def __init__(self):
        self.cupy = sys.modules["cupy"]

    def read(self, array) -> View:
        return _read_interface(array, array.__cuda_array_interface__, CUDA, array.device.id)

    def empty(self, like, shape, dtype):
        with like.device:
            return self.cupy.empty(shape, _dtypes.to_numpy(dtype))

    def zeros(self, like, shape, dtype):
        with like.device:
            return self.cupy.zeros(shape, _dtypes.to_numpy(dtype))

    def device_index(self, array) -> int:
        return array.device.id

    def stream(self, array) -> int:
        return self.cupy.cuda.get_current_stream(array.device.id).ptr


class CudaInterface(Framework):
    """Whatever has __cuda_array_interface__: read, and written through `out`; it makes no new arrays."""

    def read(self, array) -> View:
        return _read_interface(array, array.__cuda_array_interface__, CUDA, 0)

    def require_writable(self, array) -> None:
        if array.__cuda_array_interface__["data"][1]:
            raise ValueError("it is read-only")

    def empty(self, like, shape, dtype):
        raise TypeError(f"a {type(like).__name__} cannot be made here; pass every output, or use torch or CuPy arrays")


class ArrayInterface(Framework):
    """Whatever has __array_interface__ and is no NumPy array; outputs are NumPy arrays."""

    def read(self, array) -> View:
        return _numpy.read(np.asarray(array))

    def require_writable(self, array) -> None:
        _numpy.require_writable(np.asarray(array))

    def empty(self, like, shape, dtype):
        return _numpy.empty(like, shape, dtype)


class DLPack(Framework):
    """Whatever has __dlpack__, JAX arrays among them; outputs are Buffers, which every such library reads back."""

    def read(self, array) -> View:
        capsule = array.__dlpack__()
        tensor = bytearray(TENSOR_BYTES)
        address = np.frombuffer(tensor, np.uint8).__array_interface__["data"][0]
        if status := lib.tc_tensor_from_dlpack(capsule_pointer(capsule, b"dltensor"), address):
            raise_for(status)
        return read_back(tensor, 0)

    def require_writable(self, array) -> None:
        if type(array).__module__.partition(".")[0] in ("jax", "jaxlib"):
            raise TypeError("it is a JAX array, which is never written to; leave it out, and the output is allocated")

    def empty(self, like, shape, dtype):
        from .buffer import Buffer

        return Buffer.empty(shape, _dtypes.NAMES[dtype])


def _read_interface(array, interface: dict, device: int, index: int) -> View:
    dtype = _dtypes.of_numpy(np.dtype(interface["typestr"])) if interface["typestr"][1] != "V" else None
    if dtype is None:
        raise TypeError(f"it has dtype {getattr(array, 'dtype', interface['typestr'])}, which no kernel reads")
    shape, size = tuple(interface["shape"]), _dtypes.SIZES[dtype]
    byte_strides = interface.get("strides")
    if byte_strides is None:
        return View(interface["data"][0], shape, dense_strides(shape), dtype, device, index)
    if any(stride % size for stride in byte_strides):
        raise ValueError(f"its strides {byte_strides} are no multiples of its element size {size}")
    return View(interface["data"][0], shape, tuple(s // size for s in byte_strides), dtype, device, index)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


capsule_makers = {np.ndarray: np.ndarray.__dlpack__}
"""Of the exact types whose DLPack capsules are read by the library itself, many in one call: the fast way."""

_numpy = NumPy()
_registered: dict[type, Framework] = {}


def register(kind: type, framework: Framework) -> None:
    """Makes a class's instances readable as arrays."""
    _registered[kind] = framework


@functools.cache
def framework_of(kind: type) -> Framework | None:
    """The framework whose arrays have this type; None for a type that is no array."""
    if issubclass(kind, (np.ndarray, np.generic)):
        return _numpy
    package = kind.__module__.partition(".")[0]
    if "torch" in sys.modules and issubclass(kind, sys.modules["torch"].Tensor):
        return Torch()
    if package == "cupy":
        return CuPy()
    for known, framework in _registered.items():
        if issubclass(kind, known):
            return framework
    if hasattr(kind, "__dlpack__"):
        return DLPack()
    if hasattr(kind, "__cuda_array_interface__"):
        return CudaInterface()
    if hasattr(kind, "__array_interface__"):
        return ArrayInterface()
    return None
