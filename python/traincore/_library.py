"""The shared library: where it is found, and its few functions that are no op.

`libtraincore` is opened on import, `libtraincore_check`, which holds the float64 definitions, on first use. Both lie
beside this file in a wheel; the environment variable TRAINCORE_LIBRARY names another libtraincore, for work on it.
"""

import ctypes
import functools
import json
import os
import pathlib
import struct
import sysconfig

from . import errors

CPU, CUDA = 0, 1
DEVICES = {"cpu": CPU, "cuda": CUDA}


_EXEC = struct.Struct("=I3i4Q")


def pack_exec(
    determinism: int = 0, precision: int = 0, threads: int = 0, stream: int = 0, workspace: int = 0,
    workspace_bytes: int = 0, device_errors: int = 0,
) -> bytes:  # fmt: skip
    """A tc_exec, which says how to run a call; addresses are 0 where there is nothing."""
    return _EXEC.pack(_EXEC.size, determinism, precision, threads, stream, workspace, workspace_bytes, device_errors)


def _places() -> list[pathlib.Path]:
    """Where the libraries may lie: beside this file, or, of an editable install, in the environment's own packages."""
    chosen = os.environ.get("TRAINCORE_LIBRARY")
    if chosen:
        folder = pathlib.Path(chosen).resolve().parent
        return [folder, folder / "cli"]
    packages = pathlib.Path(sysconfig.get_path("platlib"))
    return [pathlib.Path(__file__).parent / "lib", packages / "traincore" / "lib"]


def _find(name: str) -> pathlib.Path:
    for folder in _places():
        if (folder / name).exists():
            return folder / name
    looked = ", ".join(str(folder) for folder in _places())
    raise ImportError(
        f"traincore: {name} is not in {looked}; install the wheel, or set TRAINCORE_LIBRARY to a libtraincore.so"
    )


_path = _find(os.path.basename(os.environ.get("TRAINCORE_LIBRARY", "libtraincore.so.0")))
lib = ctypes.CDLL(str(_path))
if hasattr(lib, "tc_schema"):
    lib.tc_schema.restype = ctypes.c_char_p
if not hasattr(lib, "tc_schema") or b'"cuda_workspace"' not in lib.tc_schema():
    raise ImportError(f"traincore: {_path} is older than this package; build it again")
_with_interpreter_lock = ctypes.PyDLL(str(_path))

lib.tc_last_error.restype = ctypes.c_char_p
lib.tc_version.restype = ctypes.c_char_p
lib.tc_tensor_from_dlpack.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
lib.tc_read_errors.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)]

capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_ITEM = ctypes.cast(ctypes.pythonapi.PyTuple_GetItem, ctypes.c_void_p)
_POINTER = ctypes.cast(capsule_pointer, ctypes.c_void_p)
_from_capsules = _with_interpreter_lock.tc_tensors_from_capsules
_from_capsules.argtypes = [ctypes.py_object, *[ctypes.c_void_p] * 2, ctypes.c_int64, *[ctypes.c_void_p] * 2]


def tensors_from_capsules(held: tuple, offsets: ctypes.Array, args: ctypes.Array) -> int:
    """Puts the tensors of DLPack capsules at offsets of a call's struct; returns a status."""
    return _from_capsules(held, _ITEM, _POINTER, len(held), offsets, args)


def last_error() -> str:
    return lib.tc_last_error().decode(errors="replace")


def raise_for(status: int) -> None:
    """Raises what a status other than TC_OK stands for."""
    raise errors.exception(status, last_error())


def version() -> str:
    return lib.tc_version().decode()


def schema() -> list[dict]:
    """Every op of the library: a list of {"op", "passes"}, as `traincore ops --json` prints it."""
    return json.loads(lib.tc_schema())


@functools.cache
def check_library() -> ctypes.CDLL:
    """libtraincore_check, which holds the float64 definitions."""
    check = ctypes.CDLL(str(_find("libtraincore_check.so.0")))
    check.tc_reference.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    check.tc_last_error.restype = ctypes.c_char_p
    return check
