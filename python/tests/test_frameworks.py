"""Arrays of JAX and CuPy, where they are installed."""

import numpy as np
import pytest

import traincore as tc


def test_jax_arrays_are_inputs_only(rng):
    jax = pytest.importorskip("jax")
    values = rng.standard_normal((3, 7), np.float32)
    array = jax.device_put(values, jax.devices("cpu")[0])
    found = tc.ops.softmax_forward(x=array).y
    assert isinstance(found, tc.Buffer)
    np.testing.assert_array_equal(found.numpy(), tc.ops.softmax_forward(x=values).y)
    assert jax.numpy.asarray(found.numpy()).shape == (3, 7)
    with pytest.raises(TypeError, match="y: it is a JAX array"):
        tc.ops.softmax_forward(x=values, y=array)
    np.testing.assert_array_equal(np.asarray(array), values)


def test_cupy_arrays_go_in_and_come_out(rng):
    cupy = pytest.importorskip("cupy")
    if "cuda" not in tc.ops.PASSES["rmsnorm_forward"].devices or cupy.cuda.runtime.getDeviceCount() == 0:
        pytest.skip("no GPU, or a library without CUDA")
    values, weight = rng.standard_normal((3, 33), np.float32), rng.standard_normal(33, np.float32)
    found = tc.ops.rmsnorm_forward(x=cupy.asarray(values), weight=cupy.asarray(weight), eps=1e-6)
    assert isinstance(found.y, cupy.ndarray)
    exact = tc.reference.rmsnorm_forward(x=values, weight=weight, eps=1e-6)
    np.testing.assert_allclose(found.y.get(), exact.y, rtol=1e-5, atol=1e-6)
    room = cupy.zeros((3, 40), np.float32)
    tc.ops.rmsnorm_forward(x=cupy.asarray(values), weight=cupy.asarray(weight), eps=1e-6, out=room[:, 2:35])
    cupy.testing.assert_array_equal(room[:, 2:35], found.y)
    assert not room[:, :2].any() and not room[:, 35:].any()
