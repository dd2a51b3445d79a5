"""RMSNorm, alone or of a sum, and LayerNorm as custom ops."""

import torch
from torch import Tensor

from ._define import backward_op, forward_op, kernel, rows, statistic_dtype


def _per_row(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=statistic_dtype(x))


def _room(parameter: Tensor | None, wanted: bool) -> Tensor | None:
    """Where a parameter's gradient is written; None where it is not wanted."""
    if parameter is None or not wanted:
        return None
    return torch.empty_like(parameter, memory_format=torch.contiguous_format)


# RMSNorm of x, or of x + a ------------------------------------------------------------------------------------------


def _normed_dtype(x: Tensor, weight: Tensor | None, rounding: str) -> torch.dtype | None:
    """Of y; None for x's."""
    if weight is None or rounding == "once" or weight.dtype is x.dtype:
        return None
    return torch.promote_types(x.dtype, weight.dtype)


def _rmsnorm_fake(x, a, weight, eps, weight_offset, rounding):
    y = x.new_empty(x.shape, dtype=_normed_dtype(x, weight, rounding))
    return y, None if a is None else x.new_empty(x.shape), _per_row(x)


@forward_op("rmsnorm_forward", _rmsnorm_fake)
def rmsnorm_forward(
    x: Tensor, a: Tensor | None, weight: Tensor | None, eps: float, weight_offset: float, rounding: str, *,
    save: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    found = kernel("rmsnorm_forward", x)(
        x=rows(x), residual=rows(a), weight=rows(weight), eps=eps, weight_offset=weight_offset,
        rounding=rounding, y=_normed_dtype(x, weight, rounding), residual_out=a is not None, rstd=save,
    )  # fmt: skip
    return found.y, found.residual_out, found.rstd


def _rmsnorm_backward_fake(dy, dh, x, a, weight, rstd, weight_offset, rounding, want_dweight):
    return x.new_empty(x.shape), _room(weight, want_dweight)


@backward_op("rmsnorm_backward", _rmsnorm_backward_fake)
def rmsnorm_backward(
    dy: Tensor, dh: Tensor | None, x: Tensor, a: Tensor | None, weight: Tensor | None, rstd: Tensor,
    weight_offset: float, rounding: str, want_dweight: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    found = kernel("rmsnorm_backward", x)(
        dy=rows(dy), x=rows(x), residual=rows(a), weight=rows(weight), rstd=rstd,
        dresidual_out=rows(dh), weight_offset=weight_offset, rounding=rounding, dx=True,
        dweight=_room(weight, want_dweight),
    )  # fmt: skip
    return found.dx, found.dweight


def _rmsnorm_setup(ctx, inputs, output):
    x, a, weight, _, ctx.weight_offset, ctx.rounding = inputs
    ctx.save_for_backward(x, a, weight, output[2])
    other = output[1:] if a is None else output[2:]
    ctx.mark_non_differentiable(*(t for t in other if t is not None))
    ctx.set_materialize_grads(False)


def _rmsnorm_gradient(ctx, dy, dh, _):
    x, a, weight, rstd = ctx.saved_tensors
    if dy is None:
        return dh, dh, None, None, None, None
    wanted = weight is not None and ctx.needs_input_grad[2]
    dx, dweight = rmsnorm_backward(dy, dh, x, a, weight, rstd, ctx.weight_offset, ctx.rounding, wanted)
    return dx, None if a is None else dx, dweight if wanted else None, None, None, None


rmsnorm_forward.differentiate(_rmsnorm_gradient, _rmsnorm_setup)


# LayerNorm ----------------------------------------------------------------------------------------------------------


def _layernorm_fake(x, weight, bias, eps):
    return x.new_empty(x.shape), _per_row(x), _per_row(x)


@forward_op("layernorm_forward", _layernorm_fake)
def layernorm_forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, *, save: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    found = kernel("layernorm_forward", x)(
        x=rows(x), weight=rows(weight), bias=rows(bias), eps=eps, mean=save, rstd=save
    )
    return found.y, found.mean, found.rstd


def _layernorm_backward_fake(dy, x, weight, bias, mean, rstd, want_dweight, want_dbias):
    return x.new_empty(x.shape), _room(weight, want_dweight), _room(bias, want_dbias)


@backward_op("layernorm_backward", _layernorm_backward_fake)
def layernorm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, rstd: Tensor, want_dweight: bool,
    want_dbias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    found = kernel("layernorm_backward", x)(
        dy=rows(dy), x=rows(x), weight=rows(weight), mean=mean, rstd=rstd, dx=True,
        dweight=_room(weight, want_dweight), dbias=_room(bias, want_dbias),
    )  # fmt: skip
    return found.dx, found.dweight, found.dbias


def _layernorm_setup(ctx, inputs, output):
    x, weight, bias, _ = inputs
    ctx.save_for_backward(x, weight, bias, output[1], output[2])
    ctx.mark_non_differentiable(output[1], output[2])
    ctx.set_materialize_grads(False)


def _layernorm_gradient(ctx, dy, *_):
    if dy is None:
        return (None,) * 4
    x, weight, bias, mean, rstd = ctx.saved_tensors
    want_dweight = weight is not None and ctx.needs_input_grad[1]
    want_dbias = bias is not None and ctx.needs_input_grad[2]
    dx, dweight, dbias = layernorm_backward(dy, x, weight, bias, mean, rstd, want_dweight, want_dbias)
    return dx, dweight if want_dweight else None, dbias if want_dbias else None, None


layernorm_forward.differentiate(_layernorm_gradient, _layernorm_setup)
