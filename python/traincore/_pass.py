"""What the schema says of a pass: its arguments, their places in the struct, the C functions."""

import ctypes
import struct
import typing
from collections.abc import Mapping

from . import _dtypes
from ._library import lib

FORMATS = {"number": "d", "integer": "q", "flag": "i", "choice": "i"}
_BACKENDS = ("cpu", "cuda")


class Field(typing.NamedTuple):
    """An argument of a pass, as the schema describes it."""

    name: str
    role: str
    offset: int
    doc: str
    shape: str = ""
    dtypes: tuple[int, ...] = ()
    shares_dtype: bool = False
    optional: bool = False
    is_list: bool = False
    count_offset: int = 0
    accumulates: bool = False
    any_stride: bool = False
    may_be: str = ""
    default: float = 0
    choices: tuple[str, ...] = ()  # "?" stands for 0 = not set, refused

    @property
    def is_tensor(self) -> bool:
        return bool(self.dtypes)

    @property
    def is_read(self) -> bool:
        return self.role in ("in", "state")


def _field(raw: dict) -> Field:
    known = {key: raw[key] for key in Field._fields if key in raw}
    known["is_list"] = raw.get("list", False)
    known["dtypes"] = tuple(_dtypes.CODES[name] for name in raw.get("dtypes", ()))
    known["choices"] = tuple(raw["choices"].split("|")) if "choices" in raw else ()
    return Field(**known)


class Pass:
    """One call of the library, from its description in the schema."""

    def __init__(self, op: str, raw: dict):
        self.op, self.name, self.formula, self.args_size = op, raw["name"], raw["formula"], raw["args_size"]
        self.devices, self.determinism, self.precision = raw["devices"], raw["determinism"], raw["precision"]
        fields = [_field(f) for f in raw["fields"]]
        self.inputs = [f for f in fields if f.is_tensor and f.is_read]
        self.outputs = [f for f in fields if f.is_tensor and not f.is_read]
        self.scalars = sorted((f for f in fields if not f.is_tensor), key=lambda f: f.offset)
        self.in_place = any(f.role == "state" for f in self.inputs)  # there is work without any output
        self.choices = [
            (i, {name: value for value, name in enumerate(f.choices) if name != "?"})
            for i, f in enumerate(self.scalars)
            if f.role == "choice"
        ]
        tensors = [*self.inputs, *self.outputs]
        self.conditions = [  # scalars that shapes depend on, and their places
            (f.name, i) for i, f in enumerate(self.scalars) if any(f"when({f.name}=" in t.shape for t in tensors)
        ]
        self.scratch_on_gpu = raw["cuda_workspace"]  # whether a call there may need any
        self.counter = {index: (op, self.name, name) for index, name in enumerate(_BACKENDS)}
        self.layout = struct.Struct(self._format())
        self.args_type = ctypes.c_char * self.args_size
        self.function = getattr(lib, "tcx_" + self.name)
        self.function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.workspace = getattr(lib, f"tcx_{self.name}_workspace")
        self.workspace.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]

        self.result: type = tuple  # what traincore.ops returns; a named tuple of its own

    def scalar_values(self, keywords: Mapping) -> tuple:
        """Every scalar in struct order: a keyword's value, or the default; TypeError where there is neither."""
        values = []
        for f in self.scalars:
            default = f.choices[int(f.default)] if f.role == "choice" else f.default
            value = keywords.get(f.name, default)
            if value == "?":
                raise TypeError(f"{self.name}: missing keyword {f.name!r}")
            values.append(value)
        return tuple(values)

    def _format(self) -> str:
        """Size and scalars where the struct has them, zeros everywhere else."""
        text, at = "=I", 4
        for f in self.scalars:
            code = FORMATS[f.role]
            text += f"{f.offset - at}x{code}"
            at = f.offset + struct.calcsize("=" + code)
        return f"{text}{self.args_size - at}x"
