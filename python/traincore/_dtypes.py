"""Dtypes: the library's codes and names, and NumPy's."""

import numpy as np

F16, BF16, F32, I8, I32, F64, I64, U8, BOOL, I16 = 0, 1, 2, 3, 4, 5, 10, 11, 12, 13
NAMES = {
    F16: "f16",
    BF16: "bf16",
    F32: "f32",
    I8: "i8",
    I32: "i32",
    F64: "f64",
    I64: "i64",
    U8: "u8",
    BOOL: "bool",
    I16: "i16",
}
CODES = {name: code for code, name in NAMES.items()}
SIZES = {F16: 2, BF16: 2, F32: 4, I8: 1, I32: 4, F64: 8, I64: 8, U8: 1, BOOL: 1, I16: 2}
FLOATS = frozenset({F16, BF16, F32, F64})

_NUMPY = {
    F16: "float16",
    F32: "float32",
    F64: "float64",
    I8: "int8",
    I16: "int16",
    I32: "int32",
    I64: "int64",
    U8: "uint8",
    BOOL: "bool",
}
TO_NUMPY = {code: np.dtype(name) for code, name in _NUMPY.items()}
FROM_NUMPY = {dtype: code for code, dtype in TO_NUMPY.items()}


def promoted(a: int, b: int) -> int:
    """Equal dtypes stay; f16 with bf16, and anything with f32, is f32."""
    return a if a == b else F32


def of_numpy(dtype: np.dtype) -> int | None:
    """The code of a NumPy dtype, bfloat16 of ml_dtypes included; None if there is none (byte-swapped, structured)."""
    code = FROM_NUMPY.get(dtype)
    return BF16 if code is None and dtype.name == "bfloat16" else code


def to_numpy(code: int) -> np.dtype:
    """The NumPy dtype of a code; bf16 needs the package ml_dtypes."""
    if code != BF16:
        return TO_NUMPY[code]
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            "NumPy has no bfloat16 of its own: install ml_dtypes, or use traincore.Buffer or torch"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


def parse(dtype) -> int:
    """The code of "bf16", np.float32, an np.dtype, or torch.bfloat16; TypeError for anything else."""
    if isinstance(dtype, str) and dtype in CODES:
        return CODES[dtype]
    text = str(dtype)
    if text.startswith("torch."):
        text = text.removeprefix("torch.")
        if text == "bfloat16":
            return BF16
        dtype = text
    try:
        code = of_numpy(np.dtype(dtype))
    except TypeError:
        code = None
    if code is None:
        raise TypeError(f"{dtype!r} is no dtype here; these are: {', '.join(CODES)}")
    return code
