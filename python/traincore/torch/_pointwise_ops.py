"""Activations and rotary embedding as custom ops."""

import torch
from torch import Tensor

from ._define import backward_op, call, forward_op, none_like, rows


def _one_dtype(gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor | None]:
    dtype = gate.dtype if up is None else torch.promote_types(gate.dtype, up.dtype)
    return gate.to(dtype), None if up is None else up.to(dtype)


# Activations --------------------------------------------------------------------------------------------------------


def _activation_fake(gate, up, kind):
    return gate.new_empty(gate.shape)


@forward_op("activation_forward", _activation_fake)
def activation_forward(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    if gate.numel() == 0:
        return gate.new_empty(gate.shape)
    flat, other = (
        (gate.reshape(1), None if up is None else up.reshape(1)) if gate.dim() == 0 else (rows(gate), rows(up))
    )
    return call("activation_forward", gate, gate=flat, up=other, kind=kind).y.reshape(gate.shape)


def _activation_backward_fake(dy, gate, up, kind):
    return gate.new_empty(gate.shape), none_like(gate) if up is None else up.new_empty(up.shape)


@backward_op("activation_backward", _activation_backward_fake)
def activation_backward(dy: Tensor, gate: Tensor, up: Tensor | None, kind: str) -> tuple[Tensor, Tensor]:
    if gate.numel() == 0:
        return gate.new_empty(gate.shape), none_like(gate) if up is None else up.new_empty(up.shape)
    shape = gate.shape if gate.dim() else (1,)
    dy, flat = rows(dy.reshape(shape)), rows(gate.reshape(shape))
    other = None if up is None else rows(up.reshape(shape))
    found = call(
        "activation_backward", gate, dy=dy, gate=flat, up=other, kind=kind, dgate=True, dup=up is not None or None
    )
    return found.dgate.reshape(gate.shape), none_like(gate) if up is None else found.dup.reshape(gate.shape)


def _activation_setup(ctx, inputs, output):
    gate, up, ctx.kind = inputs
    ctx.save_for_backward(gate, up)


def _activation_gradient(ctx, dy):
    gate, up = ctx.saved_tensors
    dgate, dup = activation_backward(dy, gate, up, ctx.kind)
    return dgate, None if up is None else dup, None


activation_forward.register_autograd(_activation_gradient, setup_context=_activation_setup)


# Rotary embedding ---------------------------------------------------------------------------------------------------


def _rope_fake(q, k, cos, sin, positions, pairing):
    return q.new_empty(q.shape), none_like(q) if k is None else k.new_empty(k.shape)


@forward_op("rope_forward", _rope_fake)
def rope_forward(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, pairing: str
) -> tuple[Tensor, Tensor]:
    found = call(
        "rope_forward", q, q=rows(q), k=rows(k), cos=rows(cos), sin=rows(sin), positions=positions, pairing=pairing,
        k_out=k is not None or None,
    )  # fmt: skip
    return found.q_out, none_like(q) if k is None else found.k_out


def _rope_backward_fake(dq_out, dk_out, q, k, cos, sin, positions, pairing, want_tables):
    dtable = cos.new_empty(cos.shape) if want_tables else none_like(cos)
    return (
        q.new_empty(q.shape), none_like(q) if k is None else k.new_empty(k.shape), dtable, torch.empty_like(dtable),
    )  # fmt: skip


@backward_op("rope_backward", _rope_backward_fake)
def rope_backward(
    dq_out: Tensor, dk_out: Tensor | None, q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor,
    positions: Tensor | None, pairing: str, want_tables: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    tables = {}
    if want_tables:
        wish = True if q.dtype is torch.float64 else cos.new_empty(cos.shape)
        other = True if q.dtype is torch.float64 else sin.new_empty(sin.shape)
        tables = {"q": rows(q), "k": rows(k), "dcos": wish, "dsin": other}
    found = call(
        "rope_backward", q, dq_out=rows(dq_out), dk_out=rows(dk_out), cos=rows(cos), sin=rows(sin), positions=positions,
        pairing=pairing, dq=True, dk=k is not None or None, **tables,
    )  # fmt: skip
    absent = none_like(q)
    dcos = none_like(cos) if found.dcos is None else found.dcos
    dsin = none_like(sin) if found.dsin is None else found.dsin
    return found.dq, absent if k is None else found.dk, dcos, dsin


def _rope_setup(ctx, inputs, output):
    q, k, cos, sin, positions, ctx.pairing = inputs
    ctx.save_for_backward(q, k, cos, sin, positions)


def _rope_gradient(ctx, dq_out, dk_out):
    q, k, cos, sin, positions = ctx.saved_tensors
    tables = ctx.needs_input_grad[2] or ctx.needs_input_grad[3]
    arriving = None if k is None else dk_out
    dq, dk, dcos, dsin = rope_backward(dq_out, arriving, q, k, cos, sin, positions, ctx.pairing, tables)
    return dq, None if k is None else dk, dcos if tables else None, dsin if tables else None, None, None


rope_forward.register_autograd(_rope_gradient, setup_context=_rope_setup)
