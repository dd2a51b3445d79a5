"""The float64 definitions of every operation, NumPy in and out: `traincore.reference.rmsnorm_forward(x=..., eps=...)`.

The functions bear the names and keywords of traincore.ops. Float inputs are widened to f64 and float outputs are f64;
what a pass updates in place must be a float64 array. A definition runs only on what the kernel itself accepts (it is
called first, on f32 copies), so a wrong argument is refused with the kernel's sentence. Slow by intent: plain loops.
"""

import functools

import numpy as np

from . import _dtypes, _library, ops
from ._call import prepare, run
from ._pass import Field, Pass

_DEFAULT_EXEC = ("run_to_run", "standard", 0, None)


def _is_float(array: np.ndarray) -> bool:
    return _dtypes.of_numpy(array.dtype) in _dtypes.FLOATS


def _widen(array) -> np.ndarray:
    array = np.asarray(array)
    return np.array(array, np.float64, order="C") if _is_float(array) else np.ascontiguousarray(array)


def _narrow(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if _is_float(array) else array


def _each(function, value):
    """function of an array, or of every array of a list; None, True and False stay."""
    if value is None or isinstance(value, bool):
        return value
    return [function(v) for v in value] if isinstance(value, (list, tuple)) else function(value)


def _input(pass_: Pass, field: Field, value):
    if value is None:
        return None
    if field.role != "state":
        return _each(_widen, value)
    for array in value if field.is_list else [value]:
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
            raise TypeError(f"{pass_.name}: {field.name} is updated in place and must be dense float64 NumPy arrays")
    return list(value) if field.is_list else value


def _output(found, given):
    """Where the definition writes: an f64 array like the one that the kernel made, holding what was given."""
    if found is None:
        return None
    if isinstance(found, list):
        return [_output(f, None) for f in found]
    if isinstance(given, np.ndarray):
        return _widen(given)
    return np.empty(found.shape, np.float64) if _is_float(found) else np.empty_like(found)


def _define(pass_: Pass):
    function = getattr(ops, pass_.name)

    @functools.wraps(function)
    def definition(**keywords):
        unknown = set(keywords) - {f.name for f in (*pass_.inputs, *pass_.scalars, *pass_.outputs)}
        if unknown:
            raise TypeError(f"reference.{pass_.name}: unexpected keyword {sorted(unknown)[0]!r}")
        inputs = tuple(_input(pass_, f, keywords.get(f.name)) for f in pass_.inputs)
        wishes = tuple(_each(_widen, keywords.get(f.name)) for f in pass_.outputs)
        scalars = pass_.scalar_values(keywords)
        narrow = tuple(_each(_narrow, value) for value in inputs)
        found = run(pass_, narrow, scalars, tuple(_each(_narrow, w) for w in wishes), None, *_DEFAULT_EXEC)
        outputs = tuple(False if f is None else _output(f, w) for f, w in zip(found, wishes))
        args, results = prepare(pass_, inputs, scalars, outputs)
        check = _library.check_library()
        if check.tc_reference(pass_.name.encode(), args.memory):
            raise RuntimeError(check.tc_last_error().decode())
        return pass_.result(*results) if pass_.outputs else None

    definition.__module__ = __name__
    return definition


def __getattr__(name: str):
    if name not in ops.PASSES:
        raise AttributeError(f"module 'traincore.reference' has no attribute {name!r}")
    globals()[name] = _define(ops.PASSES[name])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(ops.PASSES)
