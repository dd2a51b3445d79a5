"""From Python values to a call of the C library: the arguments' struct, new outputs, errors."""

import ctypes
import functools
import struct
from collections.abc import Mapping

import numpy as np

from . import _arrays, _device, _dtypes, _plans, _shapes, errors
from ._library import CPU, CUDA, last_error, pack_exec, raise_for, tensors_from_capsules
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

    __slots__ = ("capsules", "framework", "kept", "like", "memory", "pass_", "scalars", "views")

    def __init__(self, pass_: Pass, scalars: tuple):
        self.pass_ = pass_
        self.scalars = self._encode(scalars) if pass_.choices else scalars
        self.memory = pass_.args_type()
        try:
            pass_.layout.pack_into(self.memory, 0, pass_.args_size, *self.scalars)
        except Exception:  # of struct, or of the value's own conversion
            self._pack_flags()
        self.like = None  # the first array, whose framework makes new ones
        self.framework: _arrays.Framework | None = None
        self.capsules: dict[int, object] = {}  # of plain NumPy and torch arrays, by their offsets
        self.views: dict[str, _arrays.View] = {}  # of all other arrays
        self.kept: list = []  # alive until the call has returned

    def _encode(self, scalars: tuple) -> tuple:
        """The scalars, the numbers of choices in the place of their names."""
        values = list(scalars)
        for i, names in self.pass_.choices:
            try:
                values[i] = names[values[i]]
            except (KeyError, TypeError):
                self._refuse_choice(self.pass_.scalars[i].name, values[i], names)
        return tuple(values)

    def _refuse_choice(self, name: str, value, names: dict):
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"{self.pass_.name}: {name} is {value!r}, expected one of {', '.join(map(repr, names))}")

    def _pack_flags(self) -> None:
        """Packs the scalars with NumPy's bools as Python's, which alone pack; the one that packs neither way is named."""
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
        self.pass_.layout.pack_into(self.memory, 0, self.pass_.args_size, *self.scalars)

    def conditions(self) -> tuple:
        """The scalars that shapes depend on."""
        return tuple([int(self.scalars[i]) for _, i in self.pass_.conditions]) if self.pass_.conditions else ()

    def put(self, field: Field, value) -> None:
        if field.is_list:
            self._put_list(field, value)
            return
        if self.like is None:
            self._follow(field.name, value)
        make_capsule = _capsule_makers.get(type(value))
        if make_capsule is not None:
            try:
                self.capsules[field.offset] = make_capsule(value)
                return
            except Exception:
                pass  # read-only inputs, bool in old NumPy, ml_dtypes: read below, or refused there by name
        self._put_view(field.name, value, field.role != "in", self.memory, field.offset)

    def _follow(self, name: str, value) -> None:
        self.like, self.framework = value, framework_of(self.pass_, name, value)

    def _put_view(self, name: str, value, written: bool, memory, offset: int) -> None:
        framework = framework_of(self.pass_, name, value)
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
            if self.like is None:
                self._follow(f"{field.name}[{i}]", value)
            self._put_view(f"{field.name}[{i}]", value, field.role != "in", tensors, i * _arrays.TENSOR_BYTES)
        self.kept.append(tensors)
        struct.pack_into("=Q", self.memory, field.offset, ctypes.addressof(tensors))
        struct.pack_into("=q", self.memory, field.count_offset, len(values))

    def finish(self) -> None:
        """Moves what the capsules hold into the struct."""
        capsules = self.capsules
        if capsules and tensors_from_capsules(tuple(capsules.values()), _offsets(tuple(capsules)), self.memory):
            self._refuse_capsule()

    def _refuse_capsule(self) -> None:
        names = {f.offset: f.name for f in (*self.pass_.inputs, *self.pass_.outputs)}
        for offset, capsule in self.capsules.items():
            if status := tensors_from_capsules((capsule,), _offsets((offset,)), self.memory):
                raise _blame(self.pass_, names[offset], exception(status, last_error()))

    def describe(self, name: str, value) -> tuple[str, tuple[int, ...], object]:
        """Name, shape and dtype of an array that was put, a plain one's dtype as its library has it."""
        view = self.views.get(name)
        return (name, value.shape, value.dtype) if view is None else (name, tuple(view.shape), view.dtype)


@functools.lru_cache(maxsize=4096)
def _defaults(pass_: Pass, conditions: tuple, described: tuple) -> dict[str, tuple]:
    """(shape, dtype) of every output, from the inputs as described; the shape is None where they do not tell."""
    scalars = dict(zip((name for name, _ in pass_.conditions), conditions))
    fields = {f.name: f for f in pass_.inputs}
    given = [fields[name] for name, _, _ in described]
    dtypes = tuple(_code(pass_, name, dtype) for name, _, dtype in described)
    dims: _shapes.Dims = {}
    for field, (_, shape, _) in zip(given, described):
        _shapes.bind(field.shape, shape, scalars, dims)
    return {f.name: (_shapes.make(f.shape, scalars, dims), _default_dtype(f, given, dtypes)) for f in pass_.outputs}


def _code(pass_: Pass, name: str, dtype) -> int:
    try:
        return dtype if isinstance(dtype, int) else _dtypes.parse(dtype)
    except TypeError:
        raise TypeError(f"{pass_.name}: {name}: it has dtype {dtype}, which no kernel reads") from None


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
        self.args, self.given = args, given
        described = tuple([args.describe(f.name, value) for f, value in given if not f.is_list])
        self.defaults = _defaults(args.pass_, args.conditions(), described)

    def make(self, field: Field, wish):
        args = self.args
        shape, dtype = self.defaults[field.name]
        if args.framework is None or (shape is None and not field.is_list):
            self._refuse(field)
        try:
            if field.is_list:
                return self._make_list(field, wish)
            wished = dtype if wish is None or wish is True else _dtypes.parse(wish)
            return args.framework.empty(args.like, shape, wished)
        except (TypeError, ValueError, MemoryError, errors.Unsupported) as error:
            raise _blame(args.pass_, field.name, error) from None

    def _refuse(self, output: Field) -> None:
        """Raises for an output whose shape the inputs do not tell."""
        self._refuse_rank()
        pass_, names = self.args.pass_, {f.name for f, _ in self.given}
        missing = next((f.name for f in pass_.inputs if not f.optional and f.name not in names), None)
        if missing or self.args.framework is None:
            why = f"{missing} is missing" if missing else "no input gives its shape"
            raise ValueError(f"{pass_.name}: {output.name} cannot be made, since {why}; pass an array")
        said = f"its shape [{output.shape}] is not known from the inputs; pass an array"
        raise ValueError(f"{pass_.name}: {output.name}: {said}")

    def _refuse_rank(self) -> None:
        """Raises for an input of a rank that it cannot have, whose names therefore took no extents."""
        for field, value in self.given:
            if field.is_list:
                continue
            shape = self.args.describe(field.name, value)[1]
            if not any(alternative.fits(len(shape)) for alternative in _shapes.parse(field.shape)):
                said = f"{field.name} has rank {len(shape)} (shape {list(shape)}), expected [{field.shape}]"
                raise ValueError(f"{self.args.pass_.name}: {said}")

    def _make_list(self, field: Field, wish) -> list:
        like_field, arrays = next(((f, v) for f, v in self.given if f.is_list), (None, None))
        if like_field is None:
            raise ValueError("no list of arrays is given whose shapes it could have")
        views = [self.args.views[f"{like_field.name}[{i}]"] for i in range(len(arrays))]
        return [
            self.args.framework.empty(a, v.shape, v.dtype if wish is True else _dtypes.parse(wish))
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


def _choose(pass_: Pass, what: str, value, names: dict[str, int]) -> int:
    try:
        return names[value]
    except (KeyError, TypeError):
        said = f"{pass_.name}: {what} is {value!r}, expected one of {', '.join(map(repr, names))}"
        raise ValueError(said) from None


def _choose_stream(pass_: Pass, framework: _arrays.Framework, current: int, cuda_stream) -> int:
    """The stream that the caller names, for arrays of libraries that have none."""
    if not isinstance(cuda_stream, int) or not 0 <= cuda_stream < 2**64:
        raise ValueError(f"{pass_.name}: cuda_stream is {cuda_stream!r}, expected the address of a stream, or 0")
    if framework.has_streams and cuda_stream != current:
        raise ValueError(
            f"{pass_.name}: cuda_stream is {cuda_stream}, but the current stream, on which outputs and scratch are made, is "
            f"{current}; make the stream current instead"
        )
    return cuda_stream


def make_exec(
    pass_: Pass, args: Arguments, determinism, precision, threads, cuda_stream
) -> tuple[bytes | None, int, int]:
    """How to run, where (CPU or CUDA), on which stream. None: every default, on the CPU."""
    framework, like = args.framework, args.like
    on_cpu = framework is None or framework.on_cpu(like)
    if on_cpu and cuda_stream is None and threads == 0 and determinism == "run_to_run" and precision == "standard":
        return None, CPU, 0
    if not isinstance(threads, int) or not 0 <= threads < 2**31:
        raise ValueError(f"{pass_.name}: threads is {threads!r}, expected 0 (all cores) or a number of threads")
    how = (
        _choose(pass_, "determinism", determinism, DETERMINISM),
        _choose(pass_, "precision", precision, PRECISION),
        threads,
    )
    if on_cpu:
        return pack_exec(*how), CPU, 0
    stream = framework.stream(like)
    if cuda_stream is not None:
        stream = _choose_stream(pass_, framework, stream, cuda_stream)
    address, size = _scratch(pass_, args, pack_exec(*how, stream)) if pass_.scratch_on_gpu else (0, 0)
    return pack_exec(*how, stream, address, size, _device.error_flags(framework, like)), CUDA, stream


def scratch_bytes(pass_: Pass, args: Arguments, how: bytes) -> int:
    needed = ctypes.c_size_t()
    if status := pass_.workspace(args.memory, how, ctypes.byref(needed)):
        raise_for(status)
    return needed.value


def _scratch(pass_: Pass, args: Arguments, how: bytes) -> tuple[int, int]:
    """Address and size of scratch on the device, from the caller's framework: ordered on the stream of the call."""
    size = scratch_bytes(pass_, args, how)
    if not size:
        return 0, 0
    scratch = args.framework.empty(args.like, (size,), _dtypes.U8)
    args.kept.append(scratch)
    return args.framework.read(scratch).data, size


def prepare(pass_: Pass, inputs: tuple, scalars: tuple, outputs: tuple, out=None) -> tuple[Arguments, list]:
    """The struct of a call, and its outputs, made where they were not given; nothing is computed."""
    args = Arguments(pass_, scalars)
    if out is not None:
        outputs = _merge_out(pass_, outputs, out)
    try:
        kind, tensors = _plans.kind_of(pass_, args.conditions(), (*inputs, *outputs))
        plan = _plans.find(kind)
        if plan is not None:
            args.like, args.framework = tensors[0], _arrays.framework_of(type(tensors[0]))
            return args, plan.fill(args.memory, tensors, outputs)
    except Exception:  # of tensors that are no memory, or for lack of it: raised again below, with a name
        kind = None
    results = _fill(args, inputs, outputs)
    if kind is not None:
        _plans.keep(kind, pass_, args.memory, inputs, outputs, results)
    return args, results


def _fill(args: Arguments, inputs: tuple, outputs: tuple) -> list:
    """Puts arrays of any kind and new outputs into a call's struct; returns the outputs."""
    pass_ = args.pass_
    given = [(field, value) for field, value in zip(pass_.inputs, inputs) if value is not None]
    for field, value in given:
        args.put(field, value)
    maker = None
    results = []
    wanted = pass_.in_place
    for field, value in zip(pass_.outputs, outputs):
        if type(value) not in _capsule_makers:
            if value is False or (value is None and field.optional and field.role != "saved"):
                results.append(None)
                continue
            if value is None or _is_wish(value):
                maker = maker or _NewOutputs(args, given)
                value = maker.make(field, value)
        args.put(field, value)
        results.append(value)
        wanted = True
    if not wanted:
        names = ", ".join(f"{f.name}=True" for f in pass_.outputs)
        raise ValueError(f"{pass_.name}: no output is asked for; choose from {names}, or pass arrays")
    args.finish()
    return results


def run(
    pass_: Pass, inputs: tuple, scalars: tuple, outputs: tuple, out, determinism, precision, threads, cuda_stream
) -> list:
    """One call: its outputs in schema order, None where one was not asked for."""
    args, results = prepare(pass_, inputs, scalars, outputs, out)
    how, device, stream = make_exec(pass_, args, determinism, precision, threads, cuda_stream)
    status = pass_.function(args.memory, how)
    if status:
        raise_for(status)
    _counts[pass_.counter[device]] += 1
    if device == CUDA and args.views:  # which plain arrays, that need not be told, are never in
        for result in results:
            if result is not None and not isinstance(result, list):
                framework_of(pass_, "output", result).wrote(result, stream)
    return results
