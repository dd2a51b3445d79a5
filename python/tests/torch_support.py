"""What the torch tests share: the devices of this machine and build, random tensors, errors against float64."""

import numpy as np
import pytest
import torch

import traincore as tc

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
on_every_device = pytest.mark.parametrize("device", DEVICES)


def needs(device: str, *passes: str) -> None:
    """Skips where this build does not serve these passes on the device."""
    for name in passes:
        if name not in tc.ops.PASSES or device not in tc.ops.PASSES[name].devices:
            pytest.skip(f"this build does not run {name} on {device}")


def randn(device: str, *shape: int, dtype=torch.float32, seed: int = 0, grad: bool = False):
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return torch.tensor(values, dtype=dtype, device=device, requires_grad=grad)


def error(found, exact) -> float:
    """The largest difference, as a share of the largest value."""
    found, exact = found.detach().double().cpu(), exact.detach().double().cpu()
    assert found.shape == exact.shape
    return float((found - exact).abs().max() / exact.abs().max().clamp(min=1e-30)) if found.numel() else 0.0
