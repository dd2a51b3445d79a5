"""traincore.Buffer: shapes, dtypes, memory shared and kept alive, exchange with NumPy."""

import gc

import numpy as np
import pytest

import traincore as tc
from traincore import Buffer


def test_shapes_are_tuples():
    assert Buffer(()).shape == () and Buffer(()).nbytes == 4
    assert Buffer(3).shape == (3,) and Buffer([2, 0, 5]).shape == (2, 0, 5)
    assert Buffer((2, 3), np.float16).nbytes == 12 and Buffer((2, 3)).dtype == np.float32
    assert Buffer((2, 3), "i64").dtype == np.int64 and Buffer(1, bool).dtype == bool
    assert len(Buffer((4, 2))) == 4
    assert repr(Buffer((2, 3), "bf16")) == "Buffer(shape=(2, 3), dtype=bf16, device='cpu')"


def test_memory_is_aligned_shared_and_kept_alive():
    buffer = Buffer.zeros((3, 5))
    view = buffer.numpy()
    assert view.ctypes.data % 64 == 0 and view.flags.writeable
    view[1, 2] = 7
    assert buffer.numpy()[1, 2] == 7
    del buffer
    gc.collect()
    view[...] = 1
    assert view.sum() == 15


def test_from_numpy_copies_densely(rng):
    source = rng.standard_normal((4, 6), np.float32)[::2, ::-1]
    buffer = Buffer.from_numpy(source)
    np.testing.assert_array_equal(buffer.numpy(), source)
    assert buffer.numpy().flags.c_contiguous
    source[...] = 0
    assert buffer.numpy().any()


def test_exchange():
    buffer = Buffer.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3))
    again = np.from_dlpack(buffer)
    buffer.numpy()[0, 0] = 9
    assert again[0, 0] == 9
    assert np.asarray(buffer, np.float64).dtype == np.float64


def test_bf16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    buffer = Buffer.from_numpy(np.array([1, 2.5], ml_dtypes.bfloat16))
    assert buffer.dtype == ml_dtypes.bfloat16
    wide = tc.ops.cast(x=buffer, y="f32").y
    assert isinstance(wide, Buffer)
    np.testing.assert_array_equal(wide.numpy(), [1, 2.5])
    assert tc.ops.cast(x=wide, y="bf16").y.numpy().dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    "kind, sentence, call",
    [
        (TypeError, "shape is 'a'", lambda: Buffer("a")),
        (TypeError, "shape is None", lambda: Buffer(None)),
        (ValueError, "at least 0", lambda: Buffer((2, -1))),
        (ValueError, "at most 8", lambda: Buffer((1,) * 9)),
        (TypeError, "no dtype here", lambda: Buffer(2, np.complex64)),
        (TypeError, "no dtype here", lambda: Buffer(2, "floatish")),
        (ValueError, "device is 'tpu'", lambda: Buffer(2, device="tpu")),
        (TypeError, "array is a list", lambda: Buffer.from_numpy([1, 2])),
        (TypeError, "complex64", lambda: Buffer.from_numpy(np.ones(2, np.complex64))),
        ((MemoryError, ValueError), None, lambda: Buffer((1 << 40, 1 << 20))),
        (TypeError, "len", lambda: len(Buffer(()))),
    ],
)
def test_refusals(kind, sentence, call):
    with pytest.raises(kind, match=sentence):
        call()
