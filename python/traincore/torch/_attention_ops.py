"""Attention as a custom op."""

import torch
from torch import Tensor

from ._define import backward_op, forward_op, kernel, rows, statistic_dtype


def _options(scale, causal, causal_offset, window_left, window_right, softcap, dropout, seed) -> dict:
    return {
        "scale": scale, "causal": causal, "causal_offset": causal_offset, "window_left": window_left,
        "window_right": window_right, "softcap": softcap, "dropout": dropout, "seed": seed,
    }  # fmt: skip


def _attention_fake(q, k, v, mask, bias, slopes, scale, causal, causal_offset, left, right, softcap, dropout, seed):
    o = q.new_empty((*q.shape[:3], v.shape[3]))
    statistic = q.new_empty(q.shape[:3], dtype=statistic_dtype(q))
    return o, q.new_empty(o.shape, dtype=statistic_dtype(q)), statistic, torch.empty_like(statistic)


@forward_op("attention_forward", _attention_fake)
def attention_forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, slopes: Tensor | None, scale: float,
    causal: bool, causal_offset: int, left: int, right: int, softcap: float, dropout: float, seed: int, *,
    save: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    found = kernel("attention_forward", q)(
        q=rows(q), k=rows(k), v=rows(v), mask=rows(mask), bias=rows(bias), alibi_slopes=rows(slopes),
        precise_output=save, row_max=save, row_log_sum=save,
        **_options(scale, causal, causal_offset, left, right, softcap, dropout, seed),
    )  # fmt: skip
    return found.o, found.precise_output, found.row_max, found.row_log_sum


def _room(bias, want_dbias: bool, slopes, want_dslopes: bool) -> tuple[Tensor | None, Tensor | None]:
    """Where the gradients of bias and slopes are written; None where they are not wanted."""
    return bias.new_empty(bias.shape) if want_dbias else None, slopes.new_empty(slopes.shape) if want_dslopes else None


def _attention_backward_fake(
    do, q, k, v, mask, bias, slopes, precise_output, row_max, row_log_sum, scale, causal, causal_offset, left, right,
    softcap, dropout, seed, want_dbias, want_dslopes,
):  # fmt: skip
    rooms = _room(bias, want_dbias, slopes, want_dslopes)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), *rooms


@backward_op("attention_backward", _attention_backward_fake)
def attention_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, slopes: Tensor | None,
    precise_output: Tensor, row_max: Tensor, row_log_sum: Tensor, scale: float, causal: bool, causal_offset: int,
    left: int, right: int, softcap: float, dropout: float, seed: int, want_dbias: bool, want_dslopes: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    dbias, dslopes = _room(bias, want_dbias, slopes, want_dslopes)
    found = kernel("attention_backward", q)(
        do=rows(do), q=rows(q), k=rows(k), v=rows(v), mask=rows(mask), bias=rows(bias),
        alibi_slopes=rows(slopes), precise_output=precise_output, row_max=row_max, row_log_sum=row_log_sum,
        dq=True, dk=True, dv=True, dbias=dbias, dalibi_slopes=dslopes,
        **_options(scale, causal, causal_offset, left, right, softcap, dropout, seed),
    )  # fmt: skip
    return found.dq, found.dk, found.dv, found.dbias, found.dalibi_slopes


def _attention_setup(ctx, inputs, output):
    q, k, v, mask, bias, slopes, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, mask, bias, slopes, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _attention_gradient(ctx, do, *_):
    if do is None:
        return (None,) * 14
    q, k, v, mask, bias, slopes, *kept = ctx.saved_tensors
    want_dbias, want_dslopes = ctx.needs_input_grad[4], ctx.needs_input_grad[5]
    dq, dk, dv, dbias, dslopes = attention_backward(
        do, q, k, v, mask, bias, slopes, *kept, *ctx.options, want_dbias, want_dslopes
    )
    return (dq, dk, dv, None, dbias if want_dbias else None, dslopes if want_dslopes else None) + (None,) * 8


attention_forward.differentiate(_attention_gradient, _attention_setup)
