"""Calls on torch tensors like an earlier one: all that their structs say of tensors, but for the addresses, is known.

The first call of its kind goes the long way, which validates and says what is wrong, and leaves a Plan. Two calls are of
one kind if the same arguments are given, as tensors of the same shapes, strides, dtypes and devices. Only for torch: an
address is quick to read from its tensors, and slow from NumPy's arrays.
"""

import struct
import typing

from ._pass import Pass

_MOST = 4096
_TENSOR = struct.Struct("=Q144s")  # a tc_tensor: its address, all else

tensor_types: set[type] = set()
"""Exact types of torch's tensors, once one has been seen."""


class Plan(typing.NamedTuple):
    given: list[tuple[int, bytes]]  # of each tensor that the caller brings: its place in the struct, what is said of it
    made: list[tuple]  # of each new output: its index, shape, dtype, place, what is said of it
    left_out: list[int]  # outputs that are not asked for

    def fill(self, memory, tensors: list, outputs: tuple) -> list:
        """Puts tensors and new outputs into a call's struct; returns the outputs."""
        for (offset, said), tensor in zip(self.given, tensors):
            _TENSOR.pack_into(memory, offset, tensor.data_ptr(), said)
        results = list(outputs)
        new_empty = tensors[0].new_empty
        for i, shape, dtype, offset, said in self.made:
            results[i] = output = new_empty(size=shape, dtype=dtype)
            _TENSOR.pack_into(memory, offset, output.data_ptr(), said)
        for i in self.left_out:
            results[i] = None
        return results


_plans: dict[tuple, Plan] = {}


def kind_of(pass_: Pass, conditions: tuple, arrays: tuple) -> tuple[tuple | None, list]:
    """What a call has in common with others of its kind, None if it has other arrays than tensors; its tensors."""
    key, tensors = [pass_, conditions], []
    for array in arrays:
        if type(array) in tensor_types:
            if array.is_neg():
                return None, []  # refused where it is read
            key += array.shape, array.stride(), array.dtype, array.device
            tensors.append(array)
        elif array is None or array is True or array is False:
            key.append(array)
        else:
            return None, []
    return (tuple(key) if tensors else None), tensors


def find(kind: tuple | None) -> Plan | None:
    return _plans.get(kind)


def keep(kind: tuple, pass_: Pass, memory, inputs: tuple, outputs: tuple, results: list) -> None:
    """Leaves a plan for the calls like one whose struct is complete."""

    def said(offset: int) -> bytes:
        return memory[offset + 8 : offset + _TENSOR.size]

    arrays = zip((*pass_.inputs, *pass_.outputs), (*inputs, *outputs))
    given = [(f.offset, said(f.offset)) for f, array in arrays if type(array) in tensor_types]
    made = [
        (i, result.shape, result.dtype, f.offset, said(f.offset))
        for i, (f, output, result) in enumerate(zip(pass_.outputs, outputs, results))
        if result is not None and result is not output
    ]
    if len(_plans) >= _MOST:
        _plans.clear()
    _plans[kind] = Plan(given, made, [i for i, result in enumerate(results) if result is None])
