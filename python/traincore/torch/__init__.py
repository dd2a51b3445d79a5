"""PyTorch face: autograd functions, modules, AdamW, and patch(model) for Hugging Face decoders.

    import traincore.torch as tct
    y = tct.rmsnorm(x, weight)                    # differentiable, CPU and CUDA
    patched = tct.patch(model)                    # a Hugging Face Llama, Qwen, Mistral or Gemma, in place
    patched.undo()

Calls run on the caller's current stream and never synchronise. float64 CPU tensors run the float64 definitions.
"""

from .functional import (
    activation,
    add_rmsnorm,
    attention,
    cross_entropy,
    geglu,
    gelu,
    layernorm,
    log_softmax,
    quick_gelu,
    relu,
    relu2,
    rmsnorm,
    rope,
    sigmoid,
    silu,
    softmax,
    swiglu,
    tanh,
)  # fmt: skip
from .modules import CrossEntropyLoss, GatedMLP, LayerNorm, RMSNorm, SiLU
from .optimizer import AdamW
from .patching import Patch, patch

__all__ = [
    "AdamW", "CrossEntropyLoss", "GatedMLP", "LayerNorm", "Patch", "RMSNorm", "SiLU", "activation", "add_rmsnorm",
    "attention", "cross_entropy", "geglu", "gelu", "layernorm", "log_softmax", "patch", "quick_gelu", "relu", "relu2",
    "rmsnorm", "rope", "sigmoid", "silu", "softmax", "swiglu", "tanh",
]  # fmt: skip
