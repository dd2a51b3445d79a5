"""No mistake ends the interpreter: every pass with arguments at random, most of them wrong, refuses by an exception."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import traincore as tc

ALLOWED = (TypeError, ValueError, MemoryError, OverflowError, tc.Error)


def values(rng):
    """One argument out of what people pass by mistake, and of what they should pass."""
    shape = tuple(int(n) for n in rng.integers(0, 6, rng.integers(0, 5)))
    dtype = rng.choice(["f4", "f4", "f4", "f2", "f8", "i4", "i8", "u1", "?", "c8", ">f4", "U3"])
    with np.errstate(all="ignore"):
        array = (rng.standard_normal(shape) * 10).astype(dtype)
    choices = [
        array, array, array, array, array[..., ::-1] if array.ndim else array, array.T, np.broadcast_to(array, (3, *shape)),
        None, True, False, -1, 2**70, float("nan"), "f32", "silu", "mean", [array, array], (), {}, object(), np.float32(3),
        np.ma.masked_array(array), b"x", np.float32, tc.Buffer((2, 3)),
    ]  # fmt: skip
    return choices[rng.integers(len(choices))]


def attempt(call, counts):
    try:
        call()
        counts["served"] += 1
    except ALLOWED:
        counts["refused"] += 1


def fuzz(count: int, seed: int) -> dict:
    rng, counts = np.random.default_rng(seed), {"served": 0, "refused": 0}
    passes = list(tc.ops.PASSES.values())
    for _ in range(count):
        pass_ = passes[rng.integers(len(passes))]
        keywords = {}
        for field in (*pass_.inputs, *pass_.scalars, *pass_.outputs):
            likely = (field in pass_.inputs and not field.optional) or field.role == "choice"
            if rng.random() < (0.9 if likely else 0.2):
                named = [name for name in field.choices if name != "?"]
                keywords[field.name] = str(rng.choice(named)) if named and rng.random() < 0.9 else values(rng)
        attempt(lambda: getattr(tc.ops, pass_.name)(**keywords), counts)
    return counts


def fuzz_pairs(count: int, seed: int) -> dict:
    rng, counts = np.random.default_rng(seed), {"served": 0, "refused": 0}
    functions = [
        (tc.norms.rms_norm_forward, 2), (tc.norms.layer_norm_forward, 3), (tc.norms.add_rms_norm_forward, 3),
        (tc.norms.norm_backward, 2), (tc.pointwise.activation_forward, 1), (tc.pointwise.rope_forward, 3),
        (tc.losses.cross_entropy_forward, 2), (tc.losses.softmax_backward, 2), (tc.matmul.matmul_forward, 2),
        (tc.attention.attention_forward, 3), (tc.attention.attention_backward, 2), (tc.Buffer, 2),
    ]  # fmt: skip
    for _ in range(count):
        function, arity = functions[rng.integers(len(functions))]
        attempt(lambda: function(*(values(rng) for _ in range(arity))), counts)
    return counts


@pytest.mark.parametrize("what", ["fuzz", "fuzz_pairs"])
def test_random_calls(what):
    folder = str(pathlib.Path(__file__).resolve().parent)
    code = f"import sys; sys.path.append({folder!r}); import test_fuzz; print(test_fuzz.{what}(3000, 1)['refused'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 2000
