"""The text of ops.pyi, from the schema: what IDEs and type checkers read. scripts/python_stubs writes it."""

from . import _face
from ._pass import Pass

_HEAD = """# Made by scripts/python_stubs from the schema; do not edit.
from typing import Any, Literal, Mapping, NamedTuple, Sequence

Array = Any
DType = Any
"""


def _result(pass_: Pass) -> str:
    kinds = {False: "Array", True: "list[Array]"}
    lines = [f"class {_face.result_name(pass_)}(NamedTuple):"]
    for f in pass_.outputs:
        maybe = " | None" if f.optional else ""
        lines.append(f"    {f.name}: {kinds[f.is_list]}{maybe}")
    return "\n".join(lines)


def _function(pass_: Pass) -> str:
    lines = [f"def {pass_.name}(", "    *,"]
    for name, default, kind in _face.parameters(pass_):
        lines.append(f"    {name}: {kind}," if default is None else f"    {name}: {kind} = {default},")
    returned = _face.result_name(pass_) if pass_.outputs else "None"
    lines.append(f") -> {returned}:")
    lines.append(
        '    """'
        + _face.documentation(pass_, build=False).replace("\n", "\n    ").replace("\n    \n", "\n\n")
        + '\n    """'
    )
    return "\n".join(lines)


def render(passes: dict[str, Pass]) -> str:
    parts = [_HEAD]
    for pass_ in passes.values():
        if pass_.outputs:
            parts.append(_result(pass_))
        parts.append(_function(pass_))
    return "\n\n".join(parts) + "\n"
