"""From Python values to a call of the C library: the arguments' struct, new outputs, errors."""

import ctypes
import functools
import struct
from collections.abc import Mapping

import numpy as np

from . import _arrays, _device, _dtypes, _shapes, errors
from ._library import CPU, CUDA, Exec, last_error, raise_for, tensors_from_capsules
from ._pass import FORMATS, Field, Pass
from .calls import _counts
from .errors import exception

DETERMINISM = {"run_to_run": 0, "batch_invariant": 1, "unordered": 2}
PRECISION = {"standard": 0, "strict": 1, "fast": 2}
_capsule_makers = _arrays.capsule_makers


@functools.cache
def _offsets(offsets: tuple[int, ...]):
    return (ctypes.c_int64 * len(offsets))(*offsets)


def _blame(pass_: Pass, name: str, error: Exception) -> Exception:
    """The same kind of error, naming pass and argument."""
    kind = next(
        (k for k in (TypeError, ValueError, MemoryError, errors.Unsupported) if isinstance(error, k)), errors.Error
    )
    return kind(f"{pass_.name}: {name}: {error}")


def framework_of(pass_: Pass, name: str, value) -> _arrays.Framework:
    framework = _arrays.framework_of(type(value))
    if framework is None:
        raise TypeError(f"{pass_.name}: {name} is a {type(value).__name__}, expected an array")
    return framework


def read(pass_: Pass, name: str, value) -> _arrays.View:
    """The memory of an argument; every failure of its library becomes one sentence that names the argument."""
    framework = framework_of(pass_, name, value)
    try:
        return framework.read(value)
    except Exception as error:
        raise _blame(pass_, name, error) from error


class Arguments:
    """The struct of one call as it fills: scalars first, then tensors, those of DLPack capsules all at once at the end."""

    __slots__ = ("capsules", "first", "kept", "memory", "offsets", "pass_", "plain", "scalars", "views")

    def __init__(self, pass_: Pass, scalars: tuple):
        self.pass_ = pass_
        self.scalars = self._encode(scalars)
        try:
            packed = pass_.layout.pack(pass_.args_size, *self.scalars)
        except Exception:  # of struct, or of the value's own conversion
            packed = self._pack_flags()
        self.memory = pass_.args_type.from_buffer_copy(packed)
        self.first = None  # name and value of the first array
        self.capsules: list = []  # of plain NumPy and torch arrays, with their places and names
        self.offsets: list[int] = []
        self.plain: list[str] = []
        self.views: dict[str, _arrays.View] = {}  # of all other arrays
        self.kept: list = []  # alive until the call has returned

    def _encode(self, scalars: tuple) -> tuple:
        if not self.pass_.choices:
            return scalars
        values = list(scalars)
        for i, names in self.pass_.choices:
            value = names.get(values[i]) if isinstance(values[i], str) else None
            if value is None:
                self._refuse_choice(self.pass_.scalars[i].name, values[i], names)
            values[i] = value
        return tuple(values)

    def _refuse_choice(self, name: str, value, names: dict):
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"{self.pass_.name}: {name} is {value!r}, expected one of {', '.join(map(repr, names))}")

    def _pack_flags(self) -> bytes:
        """The scalars with NumPy's bools as Python's, which alone pack; the one that packs neither way is named."""
        fields = self.pass_.scalars
        self.scalars = tuple(
            bool(value) if field.role == "flag" and isinstance(value, np.bool_) else value
            for field, value in zip(fields, self.scalars)
        )
        wanted = {"d": "a number", "q": "an integer of 64 bits", "i": "True or False"}
        for field, value in zip(fields, self.scalars):
            code = FORMATS[field.role]
            try:
                struct.pack(code, value)
            except Exception:
                kind = ValueError if isinstance(value, int) else TypeError
                raise kind(f"{self.pass_.name}: {field.name} is {value!r}, expected {wanted[code]}") from None
        return self.pass_.layout.pack(self.pass_.args_size, *self.scalars)

    def put(self, field: Field, value) -> None:
        if field.is_list:
            self._put_list(field, value)
            return
        if self.first is None:
            self.first = field.name, value
        make_capsule = _capsule_makers.get(type(value))
        if make_capsule is not None:
            try:
                self.capsules.append(make_capsule(value))
                self.offsets.append(field.offset)
                self.plain.append(field.name)
                return
            except Exception:
                pass  # read-only inputs, bool in old NumPy, ml_dtypes: read below, or refused there by name
        self._put_view(field.name, value, field.role != "in", self.memory, field.offset)

    def _put_view(self, name: str, value, written: bool, memory, offset: int) -> None:
        framework = _arrays.framework_of(type(value)) or framework_of(self.pass_, name, value)
        try:
            self.views[name] = view = framework.read(value)
            if written:
                framework.require_writable(value)
            _arrays.write(view, memory, offset)
        except Exception as error:
            raise _blame(self.pass_, name, error) from error

    def _put_list(self, field: Field, values) -> None:
        if not isinstance(values, (list, tuple)):
            raise TypeError(
                f"{self.pass_.name}: {field.name} is a {type(values).__name__}, expected a list or tuple of arrays"
            )
        tensors = (ctypes.c_char * (_arrays.TENSOR_BYTES * max(len(values), 1)))()
        for i, value in enumerate(values):
            if self.first is None:
                self.first = field.name, value
            self._put_view(f"{field.name}[{i}]", value, field.role != "in", tensors, i * _arrays.TENSOR_BYTES)
        self.kept.append(tensors)
        struct.pack_into("=Q", self.memory, field.offset, ctypes.addressof(tensors))
        struct.pack_into("=q", self.memory, field.count_offset, len(values))

    def finish(self) -> None:
        """Moves what the capsules hold into the struct."""
        if self.capsules and tensors_from_capsules(tuple(self.capsules), _offsets(tuple(self.offsets)), self.memory):
            self._refuse_capsule()

    def _refuse_capsule(self) -> None:
        for capsule, offset, name in zip(self.capsules, self.offsets, self.plain):
            if status := tensors_from_capsules((capsule,), _offsets((offset,)), self.memory):
                raise _blame(self.pass_, name, exception(status, last_error()))

    def view(self, name: str, value) -> _arrays.View:
        return self.views[name] if name in self.views else read(self.pass_, name, value)

    def shape(self, name: str, value) -> tuple[int, ...]:
        return value.shape if type(value) in _capsule_makers else tuple(self.view(name, value).shape)

    def dtype(self, name: str, value) -> int:
        if name in self.views:
            return self.views[name].dtype
        try:
            return _arrays.framework_of(type(value)).dtype(value)
        except Exception as error:
            raise _blame(self.pass_, name, error) from None


@functools.lru_cache(maxsize=4096)
def _defaults(pass_: Pass, names: tuple, shapes: tuple, dtypes: tuple, conditions: tuple) -> dict[str, tuple]:
    """(shape, dtype) of every output, from those of the named inputs; the shape is None where they do not tell."""
    scalars = dict(zip((name for name, _ in pass_.conditions), conditions))
    fields = {f.name: f for f in pass_.inputs}
    given = [fields[name] for name in names]
    dims: _shapes.Dims = {}
    for field, shape in zip(given, shapes):
        _shapes.bind(field.shape, shape, scalars, dims)
    return {f.name: (_shapes.make(f.shape, scalars, dims), _default_dtype(f, given, dtypes)) for f in pass_.outputs}


def _default_dtype(output: Field, given: list[Field], dtypes: tuple) -> int:
    storage = [dtype for field, dtype in zip(given, dtypes) if field.shares_dtype]
    if output.shares_dtype and storage:
        return storage[0]
    if len(output.dtypes) == 1 or output.accumulates:
        return _dtypes.F32 if _dtypes.F32 in output.dtypes else output.dtypes[0]
    of_input = [dtype for field, dtype in zip(given, dtypes) if output.name == "d" + field.name]
    if of_input:
        return of_input[0]
    # Left open by the schema: promoted of the inputs of the same shape, or else of those with more than one dimension.
    floats = [(field, dtype) for field, dtype in zip(given, dtypes) if _dtypes.F32 in field.dtypes]
    alike = [d for f, d in floats if f.shape == output.shape] or [d for f, d in floats if " " in f.shape]
    return functools.reduce(_dtypes.promoted, alike) if alike else _dtypes.F32


class _NewOutputs:
    """Makes the outputs that the caller did not bring: shapes from the inputs' dimension names, dtypes from the schema."""

    def __init__(self, args: Arguments, given: list[tuple[Field, object]]):
        self.args, self.fields = args, given
        self.framework = None if args.first is None else framework_of(args.pass_, *args.first)
        names, shapes, dtypes = [], [], []
        for field, value in given:
            if not field.is_list:
                names.append(field.name)
                shapes.append(args.shape(field.name, value))
                dtypes.append(args.dtype(field.name, value))
        conditions = tuple([args.scalars[i] for _, i in args.pass_.conditions]) if args.pass_.conditions else ()
        self.defaults = _defaults(args.pass_, tuple(names), tuple(shapes), tuple(dtypes), conditions)

    def make(self, field: Field, wish):
        args, pass_name = self.args, self.args.pass_.name
        shape, dtype = self.defaults[field.name]
        if shape is None and not field.is_list:
            self._refuse_rank()
        if self.framework is None or (shape is None and not field.is_list):
            given = {f.name for f, _ in self.fields}
            required = (f.name for f in args.pass_.inputs if not f.optional)
            missing = next((f"{name} is missing" for name in required if name not in given), None)
            if self.framework is None or missing:
                why = missing or "no input gives its shape"
                raise ValueError(f"{pass_name}: {field.name} cannot be made, since {why}; pass an array")
        try:
            if field.is_list:
                return self._make_list(field, wish)
            if shape is None:
                raise ValueError(f"its shape [{field.shape}] is not known from the inputs; pass an array")
            wished = dtype if wish is None or wish is True else _dtypes.parse(wish)
            return self.framework.empty(args.first[1], shape, wished)
        except (TypeError, ValueError, MemoryError, errors.Unsupported) as error:
            raise _blame(args.pass_, field.name, error) from None

    def _refuse_rank(self) -> None:
        """Raises for an input of a rank that it cannot have, whose names therefore took no extents."""
        for field, value in self.fields:
            if field.is_list:
                continue
            shape = tuple(self.args.shape(field.name, value))
            if not any(alternative.fits(len(shape)) for alternative in _shapes.parse(field.shape)):
                said = f"{field.name} has rank {len(shape)} (shape {list(shape)}), expected [{field.shape}]"
                raise ValueError(f"{self.args.pass_.name}: {said}")

    def _make_list(self, field: Field, wish) -> list:
        like_field, arrays = next(((f, v) for f, v in self.fields if f.is_list), (None, None))
        if like_field is None:
            raise ValueError("no list of arrays is given whose shapes it could have")
        views = [self.args.view(f"{like_field.name}[{i}]", a) for i, a in enumerate(arrays)]
        return [
            self.framework.empty(a, v.shape, v.dtype if wish is True else _dtypes.parse(wish))
            for a, v in zip(arrays, views)
        ]


def _is_wish(value) -> bool:
    """Whether an output argument says what to make rather than being the array itself."""
    return value is True or isinstance(value, (str, type, np.dtype)) or type(value).__qualname__ == "dtype"


def _merge_out(pass_: Pass, outputs: tuple, out) -> tuple:
    """The outputs with `out` in their places."""
    if not pass_.outputs:
        raise TypeError(f"{pass_.name}: out is given, but this pass has no output")
    given = out if isinstance(out, Mapping) else {pass_.outputs[0].name: out}
    merged = list(outputs)
    names = [f.name for f in pass_.outputs]
    for name, value in given.items():
        if name not in names:
            raise TypeError(f"{pass_.name}: out names {name!r}, expected one of {', '.join(map(repr, names))}")
        if merged[names.index(name)] is not None:
            raise TypeError(f"{pass_.name}: {name} is given twice, by itself and in out")
        merged[names.index(name)] = value
    return tuple(merged)


def _make_exec(pass_: Pass, args: Arguments, determinism, precision, threads, cuda_stream) -> tuple[Exec | None, int]:
    """How to run, and where (CPU or CUDA). None: every default, on the CPU."""
    framework = None if args.first is None else framework_of(pass_, *args.first)
    on_cpu = framework is None or framework.on_cpu(args.first[1])
    if on_cpu and cuda_stream is None and not threads and determinism == "run_to_run" and precision == "standard":
        return None, CPU
    for what, value, names in (("determinism", determinism, DETERMINISM), ("precision", precision, PRECISION)):
        if value not in names:
            raise ValueError(f"{pass_.name}: {what} is {value!r}, expected one of {', '.join(map(repr, names))}")
    if not isinstance(threads, int) or not 0 <= threads < 2**31:
        raise ValueError(f"{pass_.name}: threads is {threads!r}, expected 0 (all cores) or a number of threads")
    how = Exec(ctypes.sizeof(Exec), DETERMINISM[determinism], PRECISION[precision], threads)
    if on_cpu:
        return how, CPU
    first = args.first[1]
    current = framework.stream(first)
    if framework.has_streams and cuda_stream not in (None, current):
        raise ValueError(
            f"{pass_.name}: cuda_stream is {cuda_stream}, but the current stream, on which outputs and scratch are made, is "
            f"{current}; make the stream current instead"
        )
    how.stream = current if cuda_stream is None else cuda_stream
    how.device_errors = _device.error_flags(framework, first)
    _attach_workspace(pass_, args, how, framework, first)
    return how, CUDA


def _attach_workspace(pass_: Pass, args: Arguments, how: Exec, framework: _arrays.Framework, like) -> None:
    """Scratch on the device, from the caller's framework: it is ordered on the stream that the call runs on."""
    needed = ctypes.c_size_t()
    if status := pass_.workspace(args.memory, ctypes.byref(how), ctypes.byref(needed)):
        raise_for(status)
    if needed.value:
        workspace = framework.empty(like, (needed.value,), _dtypes.U8)
        args.kept.append(workspace)
        how.workspace, how.workspace_bytes = framework.read(workspace).data, needed.value


def prepare(pass_: Pass, inputs: tuple, scalars: tuple, outputs: tuple, out=None) -> tuple[Arguments, list]:
    """The struct of a call, and its outputs, made where they were not given; nothing is computed."""
    args = Arguments(pass_, scalars)
    given = []
    for field, value in zip(pass_.inputs, inputs):
        if value is not None:
            args.put(field, value)
            given.append((field, value))
    if out is not None:
        outputs = _merge_out(pass_, outputs, out)
    maker = None
    results = []
    for field, value in zip(pass_.outputs, outputs):
        if type(value) in _capsule_makers:
            args.put(field, value)
            results.append(value)
            continue
        if value is False or (value is None and field.optional and field.role != "saved"):
            results.append(None)
            continue
        if value is None or _is_wish(value):
            maker = maker or _NewOutputs(args, given)
            value = maker.make(field, value)
        args.put(field, value)
        results.append(value)
    if not pass_.in_place and all(result is None for result in results):
        names = ", ".join(f"{f.name}=True" for f in pass_.outputs)
        raise ValueError(f"{pass_.name}: no output is asked for; choose from {names}, or pass arrays")
    args.finish()
    return args, results


def run(
    pass_: Pass, inputs: tuple, scalars: tuple, outputs: tuple, out, determinism, precision, threads, cuda_stream
) -> list:
    """One call: its outputs in schema order, None where one was not asked for."""
    args, results = prepare(pass_, inputs, scalars, outputs, out)
    how, device = _make_exec(pass_, args, determinism, precision, threads, cuda_stream)
    status = pass_.function(args.memory, None if how is None else ctypes.byref(how))
    if status:
        raise_for(status)
    _counts[pass_.counter[device]] += 1
    if device == CUDA:
        for result in results:
            if result is not None and not isinstance(result, list):
                framework_of(pass_, "output", result).wrote(result, how.stream or 0)
    return results
