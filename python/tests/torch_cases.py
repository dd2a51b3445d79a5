"""The functions of traincore.torch beside plain torch, each on small inputs of pairwise different sizes."""

import pytest
from torch_support import needs, randn, torch

import traincore.torch as tct

F = torch.nn.functional


def plain_rope(q, k, cos, sin):
    def turn(x):
        half = cos.shape[-1]
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)

    return turn(q), turn(k)


def turned_at(q, k, cos, sin):
    """Interleaved pairs, a row of positions per sequence."""

    def turn(x):
        c, s = (table[POSITIONS_ON[x.device.type]][:, None] for table in (cos, sin))
        first, second = x[..., ::2], x[..., 1::2]
        return torch.stack((first * c - second * s, second * c + first * s), -1).flatten(-2)

    return turn(q), turn(k)


def plain_cross_entropy(logits, reduction="mean"):
    """All options at once: (1-s)(lse - u_t) + s(lse - mean u) + z lse^2 of u = cap tanh(scale x / cap)."""
    u, target = 3 * torch.tanh(0.7 * logits / 3), TARGET_ON[logits.device.type]
    lse, valid = u.logsumexp(-1), target >= 0
    chosen = u.gather(-1, target.clamp(min=0)[..., None])[..., 0]
    loss = 0.9 * (lse - chosen) + 0.1 * (lse - u.mean(-1)) + 0.01 * lse**2
    loss = torch.where(valid, loss, 0.0)
    return loss if reduction == "none" else loss.sum() / valid.sum()


def every_option(logits, reduction="mean"):
    target = TARGET_ON[logits.device.type]
    options = {"label_smoothing": 0.1, "z_loss": 0.01, "logit_scale": 0.7, "softcap": 3.0}
    return tct.cross_entropy(logits, target, reduction=reduction, **options)


def plain_attention_of_all_options(q, k, v, bias, slopes):
    k, v = (t.repeat_interleave(2, 1) for t in (k, v))
    i = torch.arange(5, device=q.device)[:, None] + 2
    j = torch.arange(7, device=q.device)
    scores = 4 * torch.tanh(0.3 * q @ k.transpose(-1, -2) / 4) + bias - slopes[:, None, None] * (i - j).abs()
    visible = (j <= i) & (j >= i - 3) & MASK.to(q.device)
    return torch.where(visible, scores, -torch.inf).softmax(-1) @ v


def attention_of_all_options(q, k, v, bias, slopes):
    return tct.attention(
        q, k, v, bias=bias, alibi_slopes=slopes, mask=MASK.to(q.device), causal=True, window_left=3, softcap=4.0, scale=0.3,
    )  # fmt: skip


def plain_attention(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    visible = torch.arange(k.shape[2])[None] <= torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible.to(q.device))




def on_every_device(t):
    """t by the kind of device: a CUDA graph cannot copy it there."""
    return {"cpu": t} | ({"cuda": t.cuda()} if torch.cuda.is_available() else {})


TARGET = torch.tensor([[1, -100, 4], [0, 8, 3]])
TARGET_ON = on_every_device(TARGET)
POSITIONS_ON = on_every_device(torch.tensor([[0, 1, 2, 3, 4], [7, 0, 1, 8, 2]]))
MASK = torch.tensor([1, 1, 0, 1, 1, 1, 1]).bool()

# name: (passes, shapes of the inputs, ours, plain torch)
CASES = {
    "rmsnorm": ("rmsnorm", [(2, 3, 33), (33,)], lambda x, w: tct.rmsnorm(x, w), lambda x, w: F.rms_norm(x, w.shape, w, 1e-6)),
    "gemma": (
        "rmsnorm", [(2, 3, 33), (33,)], lambda x, w: tct.rmsnorm(x, w, 1e-5, weight_offset=1.0),
        lambda x, w: F.rms_norm(x, w.shape, 1 + w, 1e-5),
    ),
    "add_rmsnorm": (
        "rmsnorm", [(2, 3, 33), (2, 3, 33), (33,)], lambda x, a, w: tct.add_rmsnorm(x, a, w, 1e-5),
        lambda x, a, w: (F.rms_norm(x + a, w.shape, w, 1e-5), x + a),
    ),
    "layernorm": (
        "layernorm", [(2, 3, 33), (33,), (33,)], lambda x, w, b: tct.layernorm(x, w, b),
        lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    ),
    "rmsnorm over two dimensions": (
        "rmsnorm", [(2, 3, 5, 7), (5, 7)], tct.rmsnorm, lambda x, w: F.rms_norm(x, w.shape, w, 1e-6),
    ),
    "layernorm over two dimensions": (
        "layernorm", [(2, 3, 5, 7), (5, 7), (5, 7)], tct.layernorm, lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    ),
    "layernorm without weight": (
        "layernorm", [(6, 33), (33,)], lambda x, b: tct.layernorm(x, None, b), lambda x, b: F.layer_norm(x, b.shape, None, b),
    ),
    "swiglu": ("activation", [(4, 9), (4, 9)], tct.swiglu, lambda g, u: F.silu(g) * u),
    "geglu": ("activation", [(4, 9), (4, 9)], tct.geglu, lambda g, u: F.gelu(g, approximate="tanh") * u),
    "gelu": ("activation", [(4, 9)], tct.gelu, F.gelu),
    "silu": ("activation", [(2, 3, 9)], tct.silu, F.silu),
    "sigmoid": ("activation", [(4, 9)], tct.sigmoid, torch.sigmoid),
    "quick_gelu": ("activation", [(4, 9)], tct.quick_gelu, lambda x: x * torch.sigmoid(1.702 * x)),
    "relu2": ("activation", [(4, 9)], tct.relu2, lambda x: F.relu(x) ** 2),
    "tanh": ("activation", [(4, 9)], tct.tanh, torch.tanh),
    "softmax": ("softmax", [(4, 9)], tct.softmax, lambda x: x.softmax(-1)),
    "log_softmax": ("log_softmax", [(4, 9)], tct.log_softmax, lambda x: x.log_softmax(-1)),
    "cross_entropy": (
        "cross_entropy", [(2, 3, 9)], lambda x: tct.cross_entropy(x, TARGET_ON[x.device.type], label_smoothing=0.1),
        lambda x: F.cross_entropy(x.flatten(0, 1), TARGET_ON[x.device.type].flatten(), label_smoothing=0.1),
    ),
    "weighted": (
        "cross_entropy", [(2, 3, 9)],
        lambda x: tct.cross_entropy(x, TARGET_ON[x.device.type], torch.arange(1.0, 10, device=x.device).to(x.dtype), reduction="sum"),
        lambda x: F.cross_entropy(
            x.flatten(0, 1), TARGET_ON[x.device.type].flatten(), torch.arange(1.0, 10, device=x.device).to(x.dtype), reduction="sum"
        ),
    ),
    "every option": ("cross_entropy", [(2, 3, 9)], every_option, plain_cross_entropy),
    "no reduction": (
        "cross_entropy", [(2, 3, 9)], lambda x: every_option(x, "none"), lambda x: plain_cross_entropy(x, "none"),
    ),
    "rope at positions": (
        "rope", [(2, 4, 5, 8), (2, 2, 5, 8), (9, 4), (9, 4)],
        lambda q, k, c, s: tct.rope(q, k, c, s, POSITIONS_ON[q.device.type], pairing="interleaved"), turned_at,
    ),
    "rope": ("rope", [(2, 4, 5, 8), (2, 2, 5, 8), (5, 3), (5, 3)], tct.rope, plain_rope),
    "attention": (
        "attention", [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)], lambda q, k, v: tct.attention(q, k, v, causal=True),
        plain_attention,
    ),
    "biased": (
        "attention", [(1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8), (1, 2, 1, 7)],
        lambda q, k, v, b: tct.attention(q, k, v, bias=b),
        lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, attn_mask=b.expand(1, 2, 5, 7)),
    ),
    "attention of all options": (
        "attention", [(1, 4, 5, 8), (1, 2, 7, 8), (1, 2, 7, 6), (1, 4, 5, 7), (4,)], attention_of_all_options,
        plain_attention_of_all_options,
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize("name", CASES)


def inputs(shapes, device, dtype):
    return [randn(device, *shape, dtype=dtype, seed=i, grad=True) for i, shape in enumerate(shapes)]


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def outputs_and_gradients(function, given):
    found = as_tuple(function(*given))
    seeds = [randn("cpu", *f.shape, seed=77 + i).to(f) for i, f in enumerate(found)]
    return found, torch.autograd.grad(found, given, seeds)


def serve(device, op):
    needs(device, f"{op}_forward", f"{op}_backward")
