"""The Python face of a pass: signature, types and documentation, each written from the schema alone."""

from __future__ import annotations

import textwrap

from . import _dtypes
from ._pass import Field, Pass

ROW = 100
EXEC = (
    ("determinism", "'run_to_run'", 'Literal["run_to_run", "batch_invariant", "unordered"]'),
    ("precision", "'standard'", 'Literal["standard", "strict", "fast"]'),
    ("threads", "0", "int"),
    ("cuda_stream", "None", "int | None"),
)
_SCALAR_TYPES = {"number": "float", "integer": "int", "flag": "bool"}


def result_name(pass_: Pass) -> str:
    return "".join(word.capitalize() for word in pass_.name.split("_")) + "Result"


def _default(field: Field) -> str | None:
    """Source text of a scalar's default; None where there is none."""
    if field.role == "choice":
        name = field.choices[int(field.default)]
        return None if name == "?" else repr(name)
    if field.role == "flag":
        return str(bool(field.default))
    return repr(float(field.default) if field.role == "number" else int(field.default))


def parameters(pass_: Pass) -> list[tuple[str, str | None, str]]:
    """(name, default or None, type) of every keyword."""
    found: list[tuple[str, str | None, str]] = []
    for f in pass_.inputs:
        kind = "Sequence[Array]" if f.is_list else "Array"
        found.append((f.name, "None", kind + " | None") if f.optional else (f.name, None, kind))
    for f in pass_.scalars:
        names = ", ".join(f'"{name}"' for name in f.choices if name != "?")
        found.append((f.name, _default(f), f"Literal[{names}]" if names else _SCALAR_TYPES[f.role]))
    for f in pass_.outputs:
        found.append(
            (f.name, "None", "Sequence[Array] | DType | bool | None" if f.is_list else "Array | DType | bool | None")
        )
    if pass_.outputs:
        found.append(("out", "None", "Array | Mapping[str, Array | DType | bool] | None"))
    return found + list(EXEC)


def source(pass_: Pass) -> str:
    """A function that hands its keywords to _run, as source text."""

    def tuple_of(fields: list[Field]) -> str:
        return "(" + "".join(f"{f.name}, " for f in fields) + ")"

    keywords = ", ".join(name if default is None else f"{name}={default}" for name, default, _ in parameters(pass_))
    out = "out" if pass_.outputs else "None"
    how = ", ".join(name for name, _, _ in EXEC)
    call = f"_run(_pass, {tuple_of(pass_.inputs)}, {tuple_of(pass_.scalars)}, {tuple_of(pass_.outputs)}, {out}, {how})"
    returned = f"return _result(*{call})" if pass_.outputs else call
    return f"def {pass_.name}(*, {keywords}):\n    {returned}\n"


def _describe(field: Field) -> str:
    if not field.is_tensor:
        names = [name for name in field.choices if name != "?"]
        text = "one of " + ", ".join(names) if names else _SCALAR_TYPES[field.role]
        default = _default(field)
        text += "; required" if default is None else f"; default {default}"
    else:
        text = f"[{field.shape}] {' '.join(_dtypes.NAMES[d] for d in field.dtypes)}"
        if field.is_list:
            text = "a list, each " + text
        marks = [
            (field.shares_dtype, "shares the call's dtype"),
            (field.any_stride, "any strides"),
            (field.role == "state", "updated in place"),
            (field.role == "saved", "saved for backward, False leaves it out"),
            (field.optional and field.role == "in", "optional"),
            (field.optional and field.role == "out", "made when True"),
            (field.accumulates, "added to with accumulate=True (f32)"),
            (field.may_be, "may be " + field.may_be.replace("|", " or ")),
        ]
        text = "; ".join([text] + [said for holds, said in marks if holds])
    return f"{text}. {field.doc}" if field.doc else text


def _section(title: str, fields: list[Field]) -> list[str]:
    if not fields:
        return []
    lines = [f"{title}:"]
    for f in fields:
        lines += textwrap.wrap(f"{f.name}: {_describe(f)}", ROW, initial_indent="    ", subsequent_indent="        ")
    return [*lines, ""]


def documentation(pass_: Pass, build: bool = True) -> str:
    """A pass's docstring; `build` adds what depends on how the library was built."""
    returned = (
        f"Returns {result_name(pass_)}, a named tuple of the outputs, None where one was not asked for."
        if pass_.outputs
        else "Returns None."
    )
    lines = [
        *textwrap.wrap(pass_.formula, ROW),
        "",
        *_section("Inputs", pass_.inputs),
        *_section("Options", pass_.scalars),
        *_section("Outputs (an array, True to make one, a dtype to make it in, False to leave it out)", pass_.outputs),
        returned,
        *([f"This build runs it on {' and '.join(pass_.devices)}."] if build else []),
        f"Determinism {', '.join(pass_.determinism)}; precision {', '.join(pass_.precision)}.",
        "Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported",
        "(a valid request that no kernel serves). Nothing is written by a call that raises.",
    ]
    return "\n".join(lines)
