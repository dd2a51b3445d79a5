"""traincore.reference: the float64 definitions, reached by name, guarded by the kernel's own checks."""

import numpy as np
import pytest

import traincore as tc


def test_every_pass_has_a_definition():
    assert set(dir(tc.reference)) == set(tc.ops.PASSES)
    for name in tc.ops.PASSES:
        assert callable(getattr(tc.reference, name))
    assert not hasattr(tc.reference, "rmsnorm_sideways")


def test_float64_in_and_out():
    found = tc.reference.rmsnorm_forward(x=np.full((1, 257), 1.0), eps=1e-6)
    assert found.y.dtype == np.float64
    np.testing.assert_allclose(found.y, (1 + 1e-6) ** -0.5, rtol=1e-15)


def test_more_precise_than_f32():
    x = np.array([[1e8, 1.0, -1e8]])
    exact = np.exp(x - 1e8) / np.exp(x - 1e8).sum()
    np.testing.assert_allclose(tc.reference.softmax_forward(x=x).y, exact, rtol=1e-15)


def test_targets_out_of_range_are_refused_before_the_definition_reads_them():
    with pytest.raises(ValueError, match="target"):
        tc.reference.cross_entropy_forward(logits=np.ones((2, 3)), target=np.array([0, 99999999]), reduction="sum")


def test_state_is_updated_in_place():
    params, grads = [np.ones((2, 3))], [np.full((2, 3), 0.5)]
    m, v = [np.zeros((2, 3))], [np.zeros((2, 3))]
    tc.reference.adamw(params=params, grads=grads, m=m, v=v, lr=0.1, step=1, weight_decay=0.1)
    np.testing.assert_allclose(params[0], 1 - 0.1 * (0.5 / (0.5 + 1e-8) + 0.1), rtol=1e-12)
    np.testing.assert_allclose(m[0], 0.05)
    with pytest.raises(TypeError, match="must be dense float64"):
        tc.reference.adamw(params=[np.ones(3, np.float32)], grads=grads, m=m, v=v, lr=0.1, step=1)


def test_old_values_count_where_they_are_added_to(rng):
    dy, x = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    rstd = tc.reference.rmsnorm_forward(x=x, eps=1e-5).rstd
    old = np.ones(4)
    once = tc.reference.rmsnorm_backward(dy=dy, x=x, rstd=rstd, weight=old, dweight=True).dweight
    twice = tc.reference.rmsnorm_backward(dy=dy, x=x, rstd=rstd, weight=old, dweight=old, accumulate=True).dweight
    np.testing.assert_allclose(twice, once + 1, rtol=1e-14)


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword 'gamma'"):
        tc.reference.rmsnorm_forward(x=np.ones((2, 3)), gamma=1, eps=1e-6)
