"""RMSNorm, RMSNorm of a sum, and LayerNorm as custom ops."""

import torch
from torch import Tensor

from ._define import backward_op, call, forward_op, none_like, rows, statistic_dtype


def _output_dtype(row: Tensor, weight: Tensor | None, rounding: str) -> torch.dtype:
    if weight is None or rounding == "once":
        return row.dtype
    return torch.promote_types(row.dtype, weight.dtype)


def _per_row(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=statistic_dtype(x))


def _dweight(weight: Tensor | None, x: Tensor, wanted: bool) -> Tensor:
    return (
        none_like(x)
        if weight is None or not wanted
        else torch.empty_like(weight, memory_format=torch.contiguous_format)
    )


# RMSNorm ------------------------------------------------------------------------------------------------------------


def _rmsnorm_fake(x, weight, eps, weight_offset, rounding):
    return x.new_empty(x.shape, dtype=_output_dtype(x, weight, rounding)), _per_row(x)


@forward_op("rmsnorm_forward", _rmsnorm_fake)
def rmsnorm_forward(
    x: Tensor, weight: Tensor | None, eps: float, weight_offset: float, rounding: str
) -> tuple[Tensor, Tensor]:
    x = rows(x)
    y = x.new_empty(x.shape, dtype=_output_dtype(x, weight, rounding)) if x.dtype is not torch.float64 else None
    found = call(
        "rmsnorm_forward", x, x=x, weight=rows(weight), eps=eps, weight_offset=weight_offset, rounding=rounding, y=y
    )
    return found.y, found.rstd


def _rmsnorm_backward_fake(dy, x, weight, rstd, weight_offset, rounding, want_dweight):
    return x.new_empty(x.shape), _dweight(weight, x, want_dweight)


@backward_op("rmsnorm_backward", _rmsnorm_backward_fake)
def rmsnorm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor, weight_offset: float, rounding: str, want_dweight: bool
) -> tuple[Tensor, Tensor]:
    dweight = _dweight(weight, x, want_dweight)
    found = call(
        "rmsnorm_backward", x, dy=rows(dy), x=rows(x), weight=rows(weight), rstd=rstd, weight_offset=weight_offset,
        rounding=rounding, dx=True, dweight=_wish(dweight, x),
    )  # fmt: skip
    return found.dx, dweight if found.dweight is None else found.dweight


def _wish(gradient: Tensor, x: Tensor):
    """A parameter's gradient: where to write it, or for the definitions that it is wanted."""
    if gradient.numel() == 0:
        return None
    return True if x.dtype is torch.float64 else gradient


def _rmsnorm_setup(ctx, inputs, output):
    x, weight, _, ctx.weight_offset, ctx.rounding = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _rmsnorm_gradient(ctx, dy, _):
    if dy is None:
        return (None,) * 5
    x, weight, rstd = ctx.saved_tensors
    wanted = weight is not None and ctx.needs_input_grad[1]
    dx, dweight = rmsnorm_backward(dy, x, weight, rstd, ctx.weight_offset, ctx.rounding, wanted)
    return dx, dweight if wanted else None, None, None, None


rmsnorm_forward.register_autograd(_rmsnorm_gradient, setup_context=_rmsnorm_setup)


# RMSNorm of a sum ---------------------------------------------------------------------------------------------------


def _add_rmsnorm_fake(x, a, weight, eps, rounding):
    h = x.new_empty(x.shape)
    return x.new_empty(x.shape, dtype=_output_dtype(x, weight, rounding)), h, _per_row(x)


@forward_op("add_rmsnorm_forward", _add_rmsnorm_fake)
def add_rmsnorm_forward(
    x: Tensor, a: Tensor, weight: Tensor | None, eps: float, rounding: str
) -> tuple[Tensor, Tensor, Tensor]:
    x = rows(x)
    y = x.new_empty(x.shape, dtype=_output_dtype(x, weight, rounding)) if x.dtype is not torch.float64 else None
    found = call(
        "rmsnorm_forward",
        x,
        x=x,
        residual=rows(a),
        weight=rows(weight),
        eps=eps,
        rounding=rounding,
        y=y,
        residual_out=True,
    )
    return found.y, found.residual_out, found.rstd


def _add_rmsnorm_backward_fake(dy, dh, x, a, weight, rstd, rounding, want_dweight):
    return x.new_empty(x.shape), _dweight(weight, x, want_dweight)


@backward_op("add_rmsnorm_backward", _add_rmsnorm_backward_fake)
def add_rmsnorm_backward(
    dy: Tensor, dh: Tensor | None, x: Tensor, a: Tensor, weight: Tensor | None, rstd: Tensor, rounding: str,
    want_dweight: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    dweight = _dweight(weight, x, want_dweight)
    found = call(
        "rmsnorm_backward", x, dy=rows(dy), x=rows(x), residual=rows(a), weight=rows(weight), rstd=rstd,
        dresidual_out=rows(dh), rounding=rounding, dx=True, dweight=_wish(dweight, x),
    )  # fmt: skip
    return found.dx, dweight if found.dweight is None else found.dweight


def _add_rmsnorm_setup(ctx, inputs, output):
    x, a, weight, _, ctx.rounding = inputs
    ctx.save_for_backward(x, a, weight, output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.output_dtype = output[0].dtype
    ctx.set_materialize_grads(False)


def _add_rmsnorm_gradient(ctx, dy, dh, _):
    x, a, weight, rstd = ctx.saved_tensors
    if dy is None:
        return dh, dh, None, None, None
    wanted = weight is not None and ctx.needs_input_grad[2]
    dx, dweight = add_rmsnorm_backward(dy, dh, x, a, weight, rstd, ctx.rounding, wanted)
    return dx, dx, dweight if wanted else None, None, None


add_rmsnorm_forward.register_autograd(_add_rmsnorm_gradient, setup_context=_add_rmsnorm_setup)


# LayerNorm ----------------------------------------------------------------------------------------------------------


def _layernorm_fake(x, weight, bias, eps):
    return x.new_empty(x.shape), _per_row(x), _per_row(x)


@forward_op("layernorm_forward", _layernorm_fake)
def layernorm_forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    x = rows(x)
    found = call("layernorm_forward", x, x=x, weight=rows(weight), bias=rows(bias), eps=eps)
    return found.y, found.mean, found.rstd


def _layernorm_backward_fake(dy, x, weight, bias, mean, rstd, want_dweight, want_dbias):
    return x.new_empty(x.shape), _dweight(weight, x, want_dweight), _dweight(bias, x, want_dbias)


@backward_op("layernorm_backward", _layernorm_backward_fake)
def layernorm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, rstd: Tensor, want_dweight: bool,
    want_dbias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    dweight, dbias = _dweight(weight, x, want_dweight), _dweight(bias, x, want_dbias)
    found = call(
        "layernorm_backward", x, dy=rows(dy), x=rows(x), weight=rows(weight), mean=mean, rstd=rstd, dx=True,
        dweight=_wish(dweight, x), dbias=_wish(dbias, x),
    )  # fmt: skip
    return (
        found.dx,
        dweight if found.dweight is None else found.dweight,
        dbias if found.dbias is None else found.dbias,
    )


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


layernorm_forward.register_autograd(_layernorm_gradient, setup_context=_layernorm_setup)
