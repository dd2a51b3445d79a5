"""Every operation of the library, one function per pass, made at import from the schema that the library reports.

    y, _, rstd = traincore.ops.rmsnorm_forward(x=x, weight=weight, eps=1e-6)
    grads = traincore.ops.rmsnorm_backward(dy=dy, x=x, weight=weight, rstd=rstd, dx=True, dweight=True)

Arguments are keywords. Arrays are NumPy, PyTorch, CuPy, traincore.Buffer or anything with DLPack, __array_interface__ or
__cuda_array_interface__, and are read in place. An output is an array to write to, True to have it made by the library
that the first input comes from, a dtype ("bf16", np.float32) to have it made in that, or False to leave it out; left
alone, required and saved outputs are made and optional ones are not. `out` is the first output, or a mapping by name.
On a GPU a call runs on the caller's current stream; cuda_stream is for arrays of libraries that have none.
`help(traincore.ops.rmsnorm_forward)` tells the rest.
"""

import typing

from . import _face, _library
from ._call import run
from ._pass import Pass

PASSES: dict[str, Pass] = {raw["name"]: Pass(op["op"], raw) for op in _library.schema() for raw in op["passes"]}
"""What the schema says of each pass."""


def _define(pass_: Pass) -> list[str]:
    result = _face.result_name(pass_)
    names = {"_run": run, "_pass": pass_, "__name__": __name__}
    if pass_.outputs:
        kind = typing.NamedTuple(result, [(f.name, typing.Any) for f in pass_.outputs])
        kind.__module__ = __name__
        kind.__doc__ = f"What {pass_.name} returns."
        globals()[result] = names["_result"] = pass_.result = kind
    exec(_face.source(pass_), names)
    function = names[pass_.name]
    function.__doc__ = _face.documentation(pass_)
    globals()[pass_.name] = function
    return [pass_.name, result] if pass_.outputs else [pass_.name]


__all__ = [name for _pass in PASSES.values() for name in _define(_pass)]
