"""No mistake ends the interpreter: the functions of traincore.torch, forward and backward, on arguments most of them wrong."""

import pathlib
import subprocess
import sys

import numpy as np
import torch

import traincore as tc
import traincore.torch as tct

ALLOWED = (TypeError, ValueError, RuntimeError, MemoryError, OverflowError, IndexError, tc.Error)
DTYPES = [torch.float32] * 4 + [
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.complex64,
]
FUNCTIONS = [
    (tct.rmsnorm, 2), (tct.add_rmsnorm, 3), (tct.layernorm, 3), (tct.rope, 4), (tct.swiglu, 2), (tct.gelu, 1), (tct.softmax, 1),
    (tct.log_softmax, 1), (tct.cross_entropy, 2), (tct.attention, 3), (tct.LayerNorm(3), 1), (tct.RMSNorm((2, 3)), 1),
]  # fmt: skip
OPTIONS = {
    "eps": [1e-6, 0.0, -1.0, float("nan")], "rounding": ["once", "before_weight", "never"], "pairing": ["half", "interleaved"],
    "reduction": ["none", "sum", "avg"], "label_smoothing": [0.1, 2.0], "ignore_index": [0, -100], "causal": [True], "softcap": [5.0, -1.0],
    "window_left": [0, 3, -7], "causal_offset": [-2, 1 << 40], "scale": [0.5, -1.0], "dropout": [0.3, 1.5],
}  # fmt: skip


def value(rng, shapes):
    """One argument: mostly a tensor of one of a few shapes, so that calls are served too."""
    shape = shapes[rng.integers(len(shapes))]
    tensor = (torch.from_numpy(rng.standard_normal(shape)) * 3).to(DTYPES[rng.integers(len(DTYPES))])
    if tensor.is_floating_point() and rng.random() < 0.5:
        tensor.requires_grad_()
    choices = [tensor] * 12 + [
        tensor.expand(2, *shape), tensor.mT if tensor.dim() > 1 else tensor, tensor[..., ::2] if shape else tensor, tensor.to("meta"),
        tensor.detach().to_sparse() if shape else tensor, None, 1.5, "x", [tensor], np.ones(3),
    ]  # fmt: skip
    return choices[rng.integers(len(choices))]


def attempt(rng) -> bool:
    """One call, and its backward if it has one; whether it was served."""
    function, arity = FUNCTIONS[rng.integers(len(FUNCTIONS))]
    width = int(rng.integers(0, 6))
    shapes = [(1, 2, 3, width), (1, 2, 3, width), (2, 3), (3, width), (width,), ()]
    taken = getattr(function, "__code__", None)
    names = (
        []
        if taken is None
        else [n for n in OPTIONS if n in taken.co_varnames[: taken.co_argcount + taken.co_kwonlyargcount]]
    )
    options = {n: OPTIONS[n][rng.integers(len(OPTIONS[n]))] for n in names if rng.random() < 0.2}
    try:
        found = function(*(value(rng, shapes) for _ in range(arity)), **options)
        first = found[0] if isinstance(found, tuple) else found
        if first.requires_grad:
            first.sum().backward()
    except ALLOWED:
        return False
    return True


def fuzz(count: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    return sum(attempt(rng) for _ in range(count))


def test_random_calls():
    folder = str(pathlib.Path(__file__).resolve().parent)
    code = f"import sys; sys.path.append({folder!r}); import test_torch_fuzz; print(test_torch_fuzz.fuzz(4000, 1))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 200 < int(done.stdout) < 3800
