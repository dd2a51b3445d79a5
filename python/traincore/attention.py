"""Softmax attention as an explicit pair.

    output, saved = attention_forward(query, key, value, causal=True)
    dquery, dkey, dvalue = attention_backward(saved, gradient)

query [B, Hq, Sq, D]; key, value [B, Hk, Sk, D], Hq a multiple of Hk: query head h reads key head h / (Hq / Hk). Arrays
are f32, f16 or bf16 (mixed: f32); the output has that dtype, its unrounded f32 form is saved, gradients are f32.
"""

import dataclasses

from . import _dtypes, _pairs, ops
from .buffer import Buffer

_STRICT = {"precision": "strict"}
_BOTTOM_RIGHT = -(2**63)


@dataclasses.dataclass(frozen=True)
class AttentionSaved:
    """What attention's backward reads. row_maximum is of unscaled scores, and 0 where a row sees no key."""

    query: object
    key: object
    value: object
    mask: object | None
    precise_output: Buffer
    row_maximum: Buffer
    row_log_denominator: Buffer
    scale: float
    causal: bool
    causal_offset: int


def _check_shapes(query: _pairs.Operand, key: _pairs.Operand, value: _pairs.Operand) -> None:
    for argument, text in ((query, "[B, Hq, Sq, D]"), (key, "[B, Hk, Sk, D]"), (value, "[B, Hk, Sk, D]")):
        if argument.rank != 4:
            raise ValueError(f"{argument.name} has shape {argument.shape}, expected {text}")
    batch, heads, _, width = query.shape
    if key.shape[0] != batch or key.shape[3] != width:
        raise ValueError(f"key has shape {key.shape}, expected [{batch}, Hk, Sk, {width}] as query has")
    if key.shape[1] == 0 or heads % key.shape[1]:
        raise ValueError(f"key has {key.shape[1]} heads, of which query's {heads} must be a multiple")
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(f"value has shape {value.shape}, expected {key.shape[:3]} in front, as key has")


def _check_mask(mask: _pairs.Operand, query: _pairs.Operand, key: _pairs.Operand) -> tuple[int, ...]:
    """The mask's shape with all four dimensions."""
    full = (*query.shape[:3], key.shape[2])
    shape = (1,) * (4 - mask.rank) + mask.shape
    if mask.rank > 4 or any(extent not in (1, whole) for extent, whole in zip(shape, full)):
        raise ValueError(f"mask has shape {mask.shape}, expected one that broadcasts to {full}")
    return shape


def attention_forward(
    query, key, value, *, scale=None, causal=False, causal_offset=None, mask=None
) -> tuple[Buffer, AttentionSaved]:
    """softmax(scale query key^T) value. Returns (output, saved).

    scale None is 1 / sqrt(D). causal: query i sees keys j <= i + causal_offset, which is Sk - Sq by default (the last
    query sees the last key). mask: bool or u8, nonzero is visible, broadcasts to [B, Hq, Sq, Sk]."""
    query, key, value = (
        _pairs.operand("query", query), _pairs.operand("key", key), _pairs.operand("value", value),
    )  # fmt: skip
    mask = None if mask is None else _pairs.operand("mask", mask, _pairs.BOOLEANS)
    scale = 0.0 if scale is None else _pairs.real("scale", scale, above=0)
    causal = _pairs.boolean("causal", causal)
    if causal_offset is not None and not causal:
        raise ValueError("causal_offset is given, but causal is False, so it would have no effect")
    offset = _BOTTOM_RIGHT if causal_offset is None else _pairs.integer("causal_offset", causal_offset)
    _check_shapes(query, key, value)
    mask_shape = None if mask is None else _check_mask(mask, query, key)
    _pairs.require_one_device(query, key, value, mask)
    dtype = _dtypes.promoted(_dtypes.promoted(query.dtype, key.dtype), value.dtype)
    q, k, v = _pairs.place(query, dtype), _pairs.place(key, dtype), _pairs.place(value, dtype)
    visible = None if mask is None else _pairs.reshape(_pairs.place(mask), mask_shape)
    found = ops.attention_forward(
        q=q, k=k, v=v, mask=visible, scale=scale, causal=causal, causal_offset=offset, **_STRICT
    )
    kept = (_pairs.buffer(a) for a in (found.precise_output, found.row_max, found.row_log_sum))
    return _pairs.buffer(found.o), AttentionSaved(q, k, v, visible, *kept, scale, causal, offset)


def attention_backward(saved, gradient) -> tuple[Buffer, Buffer, Buffer]:
    """(dquery, dkey, dvalue)."""
    _pairs.context("saved", saved, AttentionSaved)
    gradient = _pairs.operand("gradient", gradient)
    _pairs.require_shape(gradient, saved.precise_output.shape, "the shape of the output")
    _pairs.require_one_device(_pairs.operand("query", saved.query), gradient)
    found = ops.attention_backward(
        q=_pairs.widen(saved.query), k=_pairs.widen(saved.key), v=_pairs.widen(saved.value), mask=saved.mask,
        precise_output=saved.precise_output, row_max=saved.row_maximum, row_log_sum=saved.row_log_denominator,
        do=_pairs.place(gradient, _dtypes.F32), dq=True, dk=True, dv=True, scale=saved.scale, causal=saved.causal,
        causal_offset=saved.causal_offset, **_STRICT,
    )  # fmt: skip
    return _pairs.buffer(found.dq), _pairs.buffer(found.dk), _pairs.buffer(found.dv)
