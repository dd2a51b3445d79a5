"""The explicit pairs: the documented uses, and gradients against float64."""

import numpy as np
import pytest

import traincore as tc
from traincore.attention import attention_backward, attention_forward
from traincore.losses import (
    cross_entropy_backward,
    cross_entropy_forward,
    cross_entropy_reference,
    log_softmax_backward,
    log_softmax_forward,
    log_softmax_reference,
    softmax_backward,
    softmax_forward,
    softmax_reference,
)
from traincore.matmul import matmul_backward, matmul_forward
from traincore.norms import add_rms_norm_forward, layer_norm_forward, norm_backward, rms_norm_forward
from traincore.pointwise import activation_backward, activation_forward, rope_backward, rope_forward


def numerical(function, array, cotangent, step=1e-2):
    """The gradient of sum(function(array) cotangent) by central differences, in float64."""
    grad = np.zeros(array.shape, np.float64)
    for index in np.ndindex(array.shape):
        moved = [array.astype(np.float64), array.astype(np.float64)]
        moved[0][index] += step
        moved[1][index] -= step
        high, low = (np.asarray(function(m), np.float64) for m in moved)
        grad[index] = ((high - low) * cotangent).sum() / (2 * step)
    return grad


def f32(rng, *shape):
    return rng.standard_normal(shape, np.float32)


# RMSNorm, LayerNorm, RMSNorm of a sum -------------------------------------------------------------------------------


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def test_a_norm_pair_on_3x7(rng):
    source, weight, dy = f32(rng, 3, 7), f32(rng, 7), f32(rng, 3, 7)
    output, saved = rms_norm_forward(source, weight, epsilon=1e-6)
    gradients = norm_backward(saved, dy)
    assert isinstance(output, tc.Buffer) and output.shape == (3, 7)
    np.testing.assert_allclose(output.numpy(), rms(source, weight, 1e-6), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(
        gradients.source.numpy(), numerical(lambda x: rms(x, weight, 1e-6), source, dy), atol=2e-3
    )
    np.testing.assert_allclose(
        gradients.weight.numpy(), numerical(lambda w: rms(source, w, 1e-6), weight, dy), atol=2e-3
    )
    assert gradients.bias is None and gradients.residual is None


def test_add_rms_norm(rng):
    source, residual, weight, dy, dr = f32(rng, 3, 7), f32(rng, 3, 7), f32(rng, 7), f32(rng, 3, 7), f32(rng, 3, 7)
    output, total, saved = add_rms_norm_forward(source, residual, weight)
    np.testing.assert_allclose(total.numpy(), source + residual, rtol=1e-6)
    np.testing.assert_allclose(output.numpy(), rms(source + residual, weight, 1e-5), rtol=2e-6, atol=1e-6)
    gradients = norm_backward(saved, dy, residual_output_gradient=dr)
    expected = numerical(lambda x: rms(x + residual, weight, 1e-5), source, dy) + dr
    np.testing.assert_allclose(gradients.source.numpy(), expected, atol=2e-3)
    np.testing.assert_array_equal(gradients.residual.numpy(), gradients.source.numpy())
    gradients.residual.numpy()[...] = 0
    assert gradients.source.numpy().any()


def test_layer_norm(rng):
    source, weight, bias, dy = f32(rng, 3, 7), f32(rng, 7), f32(rng, 7), f32(rng, 3, 7)

    def norm(x, w, b):
        c = x - x.mean(-1, keepdims=True)
        return c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * w + b

    output, saved = layer_norm_forward(source, weight, bias)
    np.testing.assert_allclose(output.numpy(), norm(source, weight, bias), rtol=1e-5, atol=2e-6)
    gradients = norm_backward(saved, dy)
    np.testing.assert_allclose(
        gradients.source.numpy(), numerical(lambda x: norm(x, weight, bias), source, dy), atol=2e-3
    )
    np.testing.assert_allclose(
        gradients.weight.numpy(), numerical(lambda w: norm(source, w, bias), weight, dy), atol=2e-3
    )
    np.testing.assert_allclose(gradients.bias.numpy(), dy.sum(0), rtol=1e-5, atol=1e-6)


def test_normalised_shape_of_several_dimensions(rng):
    source, weight = f32(rng, 2, 3, 5), f32(rng, 3, 5)
    output, saved = rms_norm_forward(source, weight)
    flat, _ = rms_norm_forward(source.reshape(2, 15), weight.reshape(15))
    np.testing.assert_array_equal(output.numpy().reshape(2, 15), flat.numpy())
    gradients = norm_backward(saved, source)
    assert gradients.source.shape == (2, 3, 5) and gradients.weight.shape == (3, 5)


def test_half_precision_norms_have_f32_gradients(rng):
    source, weight = f32(rng, 3, 7).astype(np.float16), f32(rng, 7)
    output, saved = rms_norm_forward(source, weight)
    assert output.dtype == np.float16
    gradients = norm_backward(saved, source)
    assert gradients.source.dtype == np.float32 and gradients.weight.dtype == np.float32
    wide = source.astype(np.float32)
    exact = norm_backward(rms_norm_forward(wide, weight)[1], wide)
    np.testing.assert_allclose(gradients.source.numpy(), exact.source.numpy(), rtol=1e-6, atol=1e-7)


# Activations and rope -----------------------------------------------------------------------------------------------


def test_a_swiglu_pair(rng):
    gate, up, gradient = f32(rng, 4, 9), f32(rng, 4, 9), f32(rng, 4, 9)
    output, saved = activation_forward(gate, kind="silu", up=up)

    def swiglu(g, u):
        return g / (1 + np.exp(-g)) * u

    np.testing.assert_allclose(output.numpy(), swiglu(gate, up), rtol=3e-6, atol=1e-6)
    dgate, dup = activation_backward(saved, gradient)
    np.testing.assert_allclose(dgate.numpy(), numerical(lambda g: swiglu(g, up), gate, gradient), atol=1e-3)
    np.testing.assert_allclose(dup.numpy(), numerical(lambda u: swiglu(gate, u), up, gradient), atol=1e-3)


def test_unary_activations_at_zero():
    slopes = {
        "silu": 0.5,
        "sigmoid": 0.25,
        "gelu_tanh": 0.5,
        "gelu_erf": 0.5,
        "quick_gelu": 0.5,
        "relu": 0,
        "relu2": 0,
        "tanh": 1,
    }
    for kind, slope in slopes.items():
        for zero in (0.0, -0.0):
            output, saved = activation_forward(np.array([zero], np.float32), kind=kind)
            dvalues = activation_backward(saved, np.ones(1, np.float32))
            assert dvalues.numpy()[0] == slope, kind


def test_activation_of_any_shape(rng):
    for shape in ((), (5,), (2, 0, 3), (2, 3, 4)):
        values = f32(rng, *shape)
        output, saved = activation_forward(values, kind="relu")
        np.testing.assert_array_equal(output.numpy(), np.maximum(values, 0))
        assert activation_backward(saved, values).shape == shape


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope(rng, interleaved):
    values, cosine, sine, gradient = f32(rng, 5, 8), f32(rng, 5, 3), f32(rng, 5, 3), f32(rng, 5, 8)

    def turn(x, c, s):
        y = np.array(x)
        first, second = (slice(0, 6, 2), slice(1, 6, 2)) if interleaved else (slice(0, 3), slice(3, 6))
        y[:, first], y[:, second] = x[:, first] * c - x[:, second] * s, x[:, second] * c + x[:, first] * s
        return y

    output, saved = rope_forward(values, cosine, sine, rotary_dim=6, interleaved=interleaved)
    np.testing.assert_allclose(output.numpy(), turn(values, cosine, sine), rtol=1e-5, atol=1e-6)
    found = rope_backward(saved, gradient)
    for i, given in enumerate((values, cosine, sine)):
        args = [values, cosine, sine]

        def moved(a):
            return turn(*args[:i], a, *args[i + 1 :])

        np.testing.assert_allclose(found[i].numpy(), numerical(moved, given, gradient), atol=1e-3)


# Losses -------------------------------------------------------------------------------------------------------------


def test_cross_entropy_with_an_ignored_row_smoothing_and_z_loss():
    logits = np.array([[1, 2, 3], [0, 0, 4], [2, -1, 0.5]], np.float32)
    target = np.array([2, -100, 0])
    loss, saved = cross_entropy_forward(logits, target, label_smoothing=0.1, z_loss=0.01)
    assert loss.shape == ()

    def exact(x):
        total, count = 0.0, 0
        for row, t in zip(x, target):
            if t == -100:
                continue
            lse = np.log(np.exp(row).sum())
            total += 0.9 * (lse - row[t]) + 0.1 * (lse - row.mean()) + 0.01 * lse**2
            count += 1
        return np.array(total / count)

    np.testing.assert_allclose(loss.numpy(), exact(logits.astype(np.float64)), rtol=1e-6)
    gradient = cross_entropy_backward(saved)
    np.testing.assert_allclose(gradient.numpy(), numerical(exact, logits, 1.0, 1e-4), atol=1e-5)
    assert (gradient.numpy()[1] == 0).all()
    reference_loss, reference_gradient = cross_entropy_reference(logits, target, label_smoothing=0.1, z_loss=0.01)
    np.testing.assert_allclose(loss.numpy(), reference_loss, rtol=1e-6)
    np.testing.assert_allclose(gradient.numpy(), reference_gradient, atol=1e-6)


def test_published_cross_entropy():
    loss, _ = cross_entropy_forward(np.array([[1, 2, 3]], np.float32), np.array([0]), z_loss=0.1)
    np.testing.assert_allclose(loss.numpy(), 3.568783805, rtol=1e-6)


def test_cross_entropy_without_reduction(rng):
    logits, target, seed = f32(rng, 2, 3, 5), np.array([[0, 4, -1], [1, 2, 3]], np.int32), f32(rng, 2, 3)
    loss, saved = cross_entropy_forward(logits, target, reduction="none", ignore_index=-1)
    assert loss.shape == (2, 3) and loss.numpy()[0, 2] == 0
    gradient = cross_entropy_backward(saved, seed)
    _, exact = cross_entropy_reference(logits, target, reduction="none", ignore_index=-1, cotangent=seed)
    np.testing.assert_allclose(gradient.numpy(), exact, atol=1e-6)


def test_nothing_valid_gives_zero(rng):
    logits = f32(rng, 3, 5)
    loss, saved = cross_entropy_forward(logits, np.full(3, -100))
    assert loss.numpy() == 0 and (cross_entropy_backward(saved).numpy() == 0).all()


def test_softmaxes(rng):
    source, gradient = f32(rng, 4, 9), f32(rng, 4, 9)
    for forward, backward, reference in (
        (softmax_forward, softmax_backward, softmax_reference),
        (log_softmax_forward, log_softmax_backward, log_softmax_reference),
    ):
        output = forward(source)
        exact, exact_gradient = reference(source, gradient)
        np.testing.assert_allclose(output.numpy(), exact, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(backward(output, gradient).numpy(), exact_gradient, rtol=1e-4, atol=1e-6)
    large = log_softmax_forward(np.array([1000, -1000, 0], np.float32))
    np.testing.assert_array_equal(large.numpy(), [0, -2000, -1000])


# Matrix product and attention ---------------------------------------------------------------------------------------


def test_matmul(rng):
    left, right, gradient = f32(rng, 4, 6), f32(rng, 6, 3), f32(rng, 4, 3)
    output, saved = matmul_forward(left, right)
    np.testing.assert_allclose(output.numpy(), left @ right, rtol=1e-5, atol=1e-6)
    dleft, dright = matmul_backward(saved, gradient)
    np.testing.assert_allclose(dleft.numpy(), gradient @ right.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dright.numpy(), left.T @ gradient, rtol=1e-5, atol=1e-6)


def test_matmul_widens_halves_batches_and_activates(rng):
    left, right = f32(rng, 2, 4, 6).astype(np.float16), f32(rng, 6, 3).astype(np.float16)
    output, saved = matmul_forward(left, right, activation="tanh")
    assert output.dtype == np.float32 and output.shape == (2, 4, 3)
    wide = np.tanh(left.astype(np.float32) @ right.astype(np.float32))
    np.testing.assert_allclose(output.numpy(), wide, rtol=1e-5, atol=1e-6)
    dleft, dright = matmul_backward(saved, np.ones((2, 4, 3), np.float32))
    slope = 1 - wide**2
    np.testing.assert_allclose(dleft.numpy(), slope @ right.astype(np.float32).T, rtol=1e-4, atol=1e-5)
    expected = left.astype(np.float32).reshape(8, 6).T @ slope.reshape(8, 3)
    np.testing.assert_allclose(dright.numpy(), expected, rtol=1e-4, atol=1e-5)
    batched, _ = matmul_forward(f32(rng, 2, 4, 6), f32(rng, 2, 6, 3))
    assert batched.shape == (2, 4, 3)


def test_matmul_over_budget_is_refused(rng):
    left, right = f32(rng, 4, 6).astype(np.float16), f32(rng, 6, 3)
    tc.calls.reset()
    with pytest.raises(ValueError, match="over budget"):
        matmul_forward(left, right, max_workspace_bytes=10)
    assert tc.calls.counts() == {}
    output, saved = matmul_forward(left, right, max_workspace_bytes=1 << 24)
    matmul_backward(saved, np.ones((4, 3), np.float32))


def attend(q, k, v, scale, visible):
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.where(visible, scale * q @ k.swapaxes(-1, -2), -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def test_a_causal_gqa_attention(rng):
    query, key, value, gradient = f32(rng, 2, 4, 3, 5), f32(rng, 2, 2, 6, 5), f32(rng, 2, 2, 6, 5), f32(rng, 2, 4, 3, 5)
    output, saved = attention_forward(query, key, value, causal=True)
    visible = np.arange(6)[None, :] <= np.arange(3)[:, None] + 3
    scale = 5**-0.5
    np.testing.assert_allclose(output.numpy(), attend(query, key, value, scale, visible), rtol=1e-5, atol=1e-6)
    found = attention_backward(saved, gradient)
    given = [query, key, value]
    for i, array in enumerate(given):

        def moved(a):
            return attend(*given[:i], a, *given[i + 1 :], scale, visible)

        np.testing.assert_allclose(found[i].numpy(), numerical(moved, array, gradient), atol=2e-3)
    assert saved.precise_output.dtype == np.float32 and saved.row_maximum.shape == (2, 4, 3)


def test_attention_mask_and_offset(rng):
    query, key, value = f32(rng, 1, 2, 3, 4), f32(rng, 1, 2, 5, 4), f32(rng, 1, 2, 5, 4)
    mask = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], bool)
    output, saved = attention_forward(query, key, value, mask=mask, scale=0.7)
    expected = attend(query[:, :, ::2], key, value, 0.7, mask[::2])
    np.testing.assert_allclose(output.numpy()[:, :, ::2], expected, rtol=1e-5, atol=1e-6)
    assert (output.numpy()[:, :, 1] == 0).all() and (saved.row_maximum.numpy()[:, :, 1] == 0).all()
    dquery, _, _ = attention_backward(saved, np.ones((1, 2, 3, 4), np.float32))
    assert (dquery.numpy()[:, :, 1] == 0).all()
    first, _ = attention_forward(query, key, value, causal=True, causal_offset=0)
    np.testing.assert_allclose(first.numpy()[:, :, 0], value[:, :, 0], rtol=1e-6)
