"""What the explicit pairs share: arguments checked before anything is allocated or launched, then placed.

NumPy arguments are copied into Buffers; Buffers and device arrays are kept by reference. Every result is a Buffer.
"""

import math
import numbers
import typing

import numpy as np

from . import _arrays, _dtypes, ops
from ._call import PRECISION, prepare, scratch_bytes
from ._library import CPU, CUDA, DEVICES, pack_exec
from .buffer import Buffer, checked_device

FLOATS = (_dtypes.F32, _dtypes.F16, _dtypes.BF16)
INDICES = (_dtypes.I32, _dtypes.I64)
BOOLEANS = (_dtypes.BOOL, _dtypes.U8)


class Operand(typing.NamedTuple):
    """A checked array argument that is not placed yet."""

    name: str
    value: object
    view: _arrays.View

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.view.shape)

    @property
    def rank(self) -> int:
        return len(self.view.shape)

    @property
    def dtype(self) -> int:
        return self.view.dtype


def operand(name: str, value, dtypes: tuple[int, ...] = FLOATS) -> Operand:
    """Checks that an argument is an array of one of these dtypes."""
    framework = None if value is None else _arrays.framework_of(type(value))
    if framework is None:
        raise TypeError(f"{name} is a {type(value).__name__}, expected a NumPy array, a Buffer or a DLPack array")
    try:
        view = framework.read(value)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    except Exception as error:
        raise ValueError(f"{name}: {error}") from None
    if view.dtype not in dtypes:
        expected = ", ".join(_dtypes.NAMES[d] for d in dtypes)
        raise TypeError(f"{name} has dtype {_dtypes.NAMES[view.dtype]}, expected {expected}")
    if isinstance(value, (np.ndarray, np.generic)):
        view = view._replace(device=DEVICES[checked_device(None)])  # where it will be copied to
    return Operand(name, value, view)


def require_shape(argument: Operand, shape: tuple[int, ...], like: str) -> None:
    if argument.shape != tuple(shape):
        raise ValueError(f"{argument.name} has shape {argument.shape}, expected {tuple(shape)}, {like}")


def require_one_device(*arguments: Operand | None) -> None:
    given = [a for a in arguments if a is not None]
    for a in given[1:]:
        if (a.view.device, a.view.index) != (given[0].view.device, given[0].view.index):
            raise ValueError(f"{a.name} is on another device than {given[0].name}")


def real(name: str, value, *, low: float = -math.inf, high: float = math.inf, above: float | None = None) -> float:
    """A finite number in [low, high], and greater than `above` if that is given."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}, expected a number")
    number = float(value)
    wrong = not math.isfinite(number) or not low <= number <= high or (above is not None and number <= above)
    if wrong:
        bounds = (
            f"> {above:g}" if above is not None else f"in [{low:g}, {high:g}]" if high < math.inf else f">= {low:g}"
        )
        raise ValueError(
            f"{name} is {value!r}, but must be finite{'' if low == -math.inf and above is None else ' and ' + bounds}"
        )
    return number


def integer(name: str, value, *, low: int = -(2**63), high: int = 2**63 - 1) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {value!r}, expected an integer")
    if not low <= int(value) <= high:
        raise ValueError(f"{name} is {value}, but must be in [{low}, {high}]")
    return int(value)


def boolean(name: str, value) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is {value!r}, expected True or False")
    return bool(value)


def chosen(name: str, value, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")
    return value


def context(name: str, value, *kinds: type) -> None:
    if not isinstance(value, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} is a {type(value).__name__}, expected {expected}, which the forward function returns")


def place(argument: Operand | None, dtype: int | None = None):
    """The argument as a Buffer or device array with a contiguous last dimension, in a dtype if one is given.

    Device arrays whose last dimension is strided are copied."""
    if argument is None:
        return None
    value, view = argument.value, argument.view
    if isinstance(value, (np.ndarray, np.generic)):
        value = Buffer.from_numpy(np.asarray(value))
    elif not hasattr(value, "reshape") and not isinstance(value, Buffer) and view.device == CPU:
        value = Buffer.wrap(value)
    elif view.shape and view.shape[-1] > 1 and view.strides[-1] != 1:
        if not hasattr(value, "contiguous"):
            raise ValueError(f"{argument.name} has stride {view.strides[-1]} in its last dimension, expected 1")
        value = value.contiguous()
    return value if dtype in (None, view.dtype) else cast(value, dtype)


def cast(value, dtype: int):
    """A new dense array in another dtype."""
    return ops.cast(x=value, y=_dtypes.NAMES[dtype]).y


def widen(value):
    """The same values in f32: itself if it is."""
    view = _arrays.framework_of(type(value)).read(value)
    return value if view.dtype == _dtypes.F32 else cast(value, _dtypes.F32)


def reshape(value, shape: tuple[int, ...]):
    """A view in another shape of what `place` or an op returned."""
    if isinstance(value, Buffer):
        return value if value.shape == tuple(shape) else value.reshaped(shape)
    return value if tuple(value.shape) == tuple(shape) else value.reshape(shape)


def buffer(value, shape: tuple[int, ...] | None = None) -> Buffer:
    """A result as the Buffer that the caller gets."""
    if shape is not None:
        value = reshape(value, shape)
    return value if isinstance(value, Buffer) else Buffer.wrap(value)


def empty_like(value, shape: tuple[int, ...], dtype: int):
    """A new array of the same library and device."""
    return _arrays.framework_of(type(value)).empty(value, shape, dtype)


def product(extents) -> int:
    return math.prod(int(extent) for extent in extents)


def host(argument: Operand) -> np.ndarray:
    """The values in host memory; copies from a GPU."""
    value = argument.value
    if argument.view.device == CUDA and not isinstance(value, (np.ndarray, np.generic, Buffer)):
        value = value.get() if hasattr(value, "get") else value.cpu().numpy()
    return value.numpy() if isinstance(value, Buffer) else np.asarray(value)


def workspace_bytes(name: str, **keywords) -> int:
    """What one call would take as scratch, strict precision; nothing is computed."""
    pass_ = ops.PASSES[name]
    args, _ = prepare(
        pass_,
        tuple(keywords.get(f.name) for f in pass_.inputs),
        pass_.scalar_values(keywords),
        tuple(keywords.get(f.name) for f in pass_.outputs),
    )
    return scratch_bytes(pass_, args, pack_exec(precision=PRECISION["strict"]))
