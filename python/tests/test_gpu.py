"""Buffers on a GPU, the pairs on them, and errors that only the device sees. Without a GPU: what is refused."""

import gc

import numpy as np
import pytest

import traincore as tc
from traincore import _device, _library
from traincore.norms import norm_backward, rms_norm_forward

GPU = _device.gpu_count() > 0
needs_gpu = pytest.mark.skipif(not GPU, reason="no GPU, or a library without CUDA")


@pytest.mark.skipif(not hasattr(_library.lib, "tc_buffer_alloc"), reason="a build of a few ops, without the kit")
def test_kit_memory_is_shared_and_freed():
    memory = _device.managed_memory(1000)
    memory[...] = 7
    view = memory[10:20]
    del memory
    gc.collect()
    assert (view == 7).all()


@pytest.mark.skipif(GPU, reason="there is a GPU")
def test_no_gpu_is_one_sentence(monkeypatch):
    with pytest.raises(tc.Error, match="no GPU that this library can use"):
        tc.Buffer((2, 3), device="cuda")
    monkeypatch.setenv("TRAINCORE_DEVICE", "cuda")
    with pytest.raises(tc.Error, match="no GPU"):
        rms_norm_forward(np.ones((2, 3), np.float32), np.ones(3, np.float32))
    tc.check_device_errors()


@needs_gpu
def test_buffers_are_managed_memory():
    buffer = tc.Buffer.zeros((3, 5), device="cuda")
    assert buffer.device == "cuda"
    buffer.numpy()[1, 2] = 7
    assert buffer.numpy().sum() == 7
    copied = tc.Buffer.from_numpy(np.arange(6.0, dtype=np.float32), device="cuda")
    np.testing.assert_array_equal(copied.numpy(), np.arange(6.0))


@needs_gpu
def test_ops_run_on_buffers(rng):
    x, w = rng.standard_normal((65, 257), np.float32), rng.standard_normal(257, np.float32)
    found = tc.ops.rmsnorm_forward(x=tc.Buffer.from_numpy(x, "cuda"), weight=tc.Buffer.from_numpy(w, "cuda"), eps=1e-6)
    assert found.y.device == "cuda"
    np.testing.assert_allclose(
        found.y.numpy(), tc.reference.rmsnorm_forward(x=x, weight=w, eps=1e-6).y, rtol=1e-5, atol=1e-6
    )


@needs_gpu
def test_a_norm_pair_on_the_default_gpu(rng, monkeypatch):
    monkeypatch.setenv("TRAINCORE_DEVICE", "cuda")
    x, w, dy = (
        rng.standard_normal((3, 7), np.float32),
        rng.standard_normal(7, np.float32),
        rng.standard_normal((3, 7), np.float32),
    )
    tc.calls.reset()
    output, saved = rms_norm_forward(x, w)
    gradients = norm_backward(saved, dy)
    assert output.device == "cuda" and tc.calls.count("rmsnorm_forward", "cuda") == 1
    exact = tc.reference.rmsnorm_forward(x=x, weight=w, eps=1e-5)
    backward = tc.reference.rmsnorm_backward(dy=dy, x=x, weight=w, rstd=exact.rstd, dx=True, dweight=True)
    np.testing.assert_allclose(output.numpy(), exact.y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradients.source.numpy(), backward.dx, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradients.weight.numpy(), backward.dweight, rtol=1e-4, atol=1e-6)


@needs_gpu
def test_bad_targets_are_told_by_the_next_check():
    if "cuda" not in tc.ops.PASSES["cross_entropy_forward"].devices:
        pytest.skip("this build does not run cross entropy on the GPU")
    logits = tc.Buffer.from_numpy(np.ones((2, 5), np.float32), "cuda")
    target = tc.Buffer.from_numpy(np.array([1, 99]), "cuda")
    tc.check_device_errors()
    tc.ops.cross_entropy_forward(logits=logits, target=target, reduction="sum")
    with pytest.raises(ValueError, match="a target was neither a class nor ignore_index"):
        tc.check_device_errors()
    tc.check_device_errors()


@needs_gpu
def test_linear_cross_entropy_with_its_gradients(rng):
    if "cuda" not in tc.ops.PASSES["linear_cross_entropy_forward"].devices:
        pytest.skip("this build does not run linear cross entropy on the GPU")
    hidden, weight = rng.standard_normal((5, 24), np.float32), rng.standard_normal((33, 24), np.float32)
    target = np.array([3, -100, 0, 32, 7])
    found = tc.ops.linear_cross_entropy_forward(
        hidden=tc.Buffer.from_numpy(hidden, "cuda"),
        weight=tc.Buffer.from_numpy(weight, "cuda"),
        target=tc.Buffer.from_numpy(target, "cuda"),
        reduction="mean",
        dhidden=True,
        dweight=True,
    )
    exact = tc.reference.linear_cross_entropy_forward(
        hidden=hidden, weight=weight, target=target, reduction="mean", dhidden=True, dweight=True
    )
    for name in ("loss", "dhidden", "dweight"):
        got = getattr(found, name).numpy()
        np.testing.assert_allclose(got, getattr(exact, name), rtol=1e-4, atol=1e-6, err_msg=name)
