"""Modules with the parameters, and so the state_dict, of the ones that they replace."""

import torch
from torch import Tensor, nn

from . import functional


class RMSNorm(nn.Module):
    """RMSNorm over the last dimension; `weight` as torch.nn.RMSNorm and Hugging Face's LlamaRMSNorm have it.

    `weight_offset=1` with zero-initialised weights is Gemma's."""

    def __init__(self, hidden_size: int, eps: float = 1e-6, rounding: str = "once", weight_offset: float = 0.0,
                 device=None, dtype=None):  # fmt: skip
        super().__init__()
        start = torch.zeros if weight_offset == 1 else torch.ones
        self.weight = nn.Parameter(start(hidden_size, device=device, dtype=dtype))
        self.eps, self.rounding, self.weight_offset = eps, rounding, weight_offset

    def forward(self, x: Tensor) -> Tensor:
        return functional.rmsnorm(x, self.weight, self.eps, self.rounding, self.weight_offset)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, eps={self.eps}, rounding={self.rounding!r}"


class LayerNorm(nn.Module):
    """LayerNorm over the last dimension, with torch.nn.LayerNorm's parameters."""

    def __init__(self, hidden_size: int, eps: float = 1e-5, bias: bool = True, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(hidden_size, device=device, dtype=dtype)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.layernorm(x, self.weight, self.bias, self.eps)


class SiLU(nn.Module):
    """x sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(x)


class GatedMLP(nn.Module):
    """down_proj(act(gate_proj(x)) up_proj(x)), with the parameters of Hugging Face's LlamaMLP."""

    def __init__(self, hidden_size: int, intermediate_size: int, kind: str = "silu", bias: bool = False,
                 device=None, dtype=None):  # fmt: skip
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, **made)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, **made)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, **made)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.activation(self.gate_proj(x), self.kind, self.up_proj(x)))


class CrossEntropyLoss(nn.Module):
    """traincore.torch.cross_entropy with fixed options."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(logits, target, **self.options)
