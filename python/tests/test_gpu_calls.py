"""What a call on GPU arrays is told: stream, scratch, error bits. On arrays that say they are on a GPU, so that it needs none."""

import struct

import numpy as np
import pytest

import traincore as tc
from traincore import _arrays, _device, _dtypes
from traincore._library import CUDA

STREAM, INDEX = 0x7700, 3


class Array:
    """Host memory that says it is on a GPU."""

    def __init__(self, values):
        self.values = values
        self.written_on = None


class Gpu(_arrays.Framework):
    def read(self, array):
        view = _arrays.framework_of(np.ndarray).read(array.values)
        return view._replace(device=CUDA, index=INDEX)

    def empty(self, like, shape, dtype):
        return Array(np.empty(shape, _dtypes.to_numpy(dtype)))

    def zeros(self, like, shape, dtype):
        return Array(np.zeros(shape, _dtypes.to_numpy(dtype)))

    def wrote(self, array, stream):
        array.written_on = stream

    def stream(self, array):
        return STREAM


@pytest.fixture
def call(monkeypatch):
    """A call of RMSNorm whose kernel answers with its tc_exec; `needed` are the bytes of scratch that it asks for."""
    pass_ = tc.ops.PASSES["rmsnorm_forward"]
    seen = []

    def kernel(args, how):
        seen.append(struct.unpack("=I3i4Q", how))
        return 0

    def made(needed, **keywords):
        def workspace(args, how, size):
            assert needed is not None, "a pass without scratch was asked how much it needs"
            assert struct.unpack("=I3i4Q", how)[4] == STREAM
            size._obj.value = needed
            return 0

        monkeypatch.setattr(pass_, "workspace", workspace)
        monkeypatch.setattr(pass_, "scratch_on_gpu", needed is not None)
        result = tc.ops.rmsnorm_forward(x=Array(np.ones((3, 7), np.float32)), eps=1e-6, **keywords)
        return result, seen[-1]

    monkeypatch.setattr(pass_, "function", kernel)
    monkeypatch.setattr(_device, "_flags", {})
    monkeypatch.setitem(_arrays._registered, Array, Gpu())
    return made


def test_stream_and_error_bits(call):
    result, how = call(None)
    flags = _device._flags[INDEX][2]
    assert how == (48, 0, 0, 0, STREAM, 0, 0, flags) and flags
    assert result.y.written_on == STREAM and result.rstd.written_on == STREAM and result.residual_out is None
    assert call(None, determinism="batch_invariant", precision="strict", threads=2)[1][1:4] == (1, 1, 2)
    assert call(None, cuda_stream=5)[0].y.written_on == 5
    assert list(_device._flags) == [INDEX]


def test_scratch_is_the_frameworks(call):
    _, how = call(4096)
    assert how[5] and how[6] == 4096
    assert call(0)[1][5:7] == (0, 0)


def test_the_schema_says_which_passes_need_scratch_on_a_gpu():
    assert not tc.ops.PASSES["add"].scratch_on_gpu
    for name in ("rmsnorm_backward", "layernorm_backward", "grad_norm"):
        pass_ = tc.ops.PASSES[name]
        assert pass_.scratch_on_gpu == ("cuda" in pass_.devices)


@pytest.mark.parametrize("stream", [-1, 2**64, "0", 1.0])
def test_streams_that_are_none(call, stream):
    with pytest.raises(ValueError, match=r"rmsnorm_forward: cuda_stream is .*, expected the address of a stream, or 0"):
        call(None, cuda_stream=stream)


@pytest.mark.parametrize(
    "how", [{"determinism": "maybe"}, {"precision": ["strict"]}, {"threads": -1}, {"threads": "2"}]
)
def test_ways_to_run_that_are_none(call, how):
    (name,) = how
    with pytest.raises(ValueError, match=f"rmsnorm_forward: {name} is .*, expected"):
        call(None, **how)
