# Made by scripts/python_stubs from the schema; do not edit.
from typing import Any, Literal, Mapping, NamedTuple, Sequence

Array = Any
DType = Any


class ActivationForwardResult(NamedTuple):
    y: Array

def activation_forward(
    *,
    gate: Array,
    up: Array | None = None,
    kind: Literal["silu", "sigmoid", "gelu_tanh", "gelu_erf", "quick_gelu", "relu", "relu2", "tanh"],
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> ActivationForwardResult:
    """y = act(gate) (up)

    Inputs:
        gate: [rows... cols] f16 bf16 f32; shares the call's dtype
        up: [rows... cols] f16 bf16 f32; shares the call's dtype; optional

    Options:
        kind: one of silu, sigmoid, gelu_tanh, gelu_erf, quick_gelu, relu, relu2, tanh; required

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [rows... cols] f16 bf16 f32; shares the call's dtype; may be gate or up

    Returns ActivationForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class ActivationBackwardResult(NamedTuple):
    dgate: Array | None
    dup: Array | None
    y: Array | None

def activation_backward(
    *,
    dy: Array,
    gate: Array,
    up: Array | None = None,
    kind: Literal["silu", "sigmoid", "gelu_tanh", "gelu_erf", "quick_gelu", "relu", "relu2", "tanh"],
    dgate: Array | DType | bool | None = None,
    dup: Array | DType | bool | None = None,
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> ActivationBackwardResult:
    """dgate = dy (up) act'(gate); dup = dy act(gate); y = act(gate) (up)

    Inputs:
        dy: [rows... cols] f16 bf16 f32; shares the call's dtype
        gate: [rows... cols] f16 bf16 f32; shares the call's dtype
        up: [rows... cols] f16 bf16 f32; shares the call's dtype; optional

    Options:
        kind: one of silu, sigmoid, gelu_tanh, gelu_erf, quick_gelu, relu, relu2, tanh; required

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dgate: [rows... cols] f16 bf16 f32; shares the call's dtype; made when True; may be dy or gate
            or up
        dup: [rows... cols] f16 bf16 f32; shares the call's dtype; made when True; may be dy or gate or
            up
        y: [rows... cols] f16 bf16 f32; shares the call's dtype; made when True; may be dy or gate or up

    Returns ActivationBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class AdamwResult(NamedTuple):
    copy_out: list[Array] | None

def adamw(
    *,
    params: Sequence[Array],
    grads: Sequence[Array],
    m: Sequence[Array],
    v: Sequence[Array],
    params_low: Sequence[Array] | None = None,
    lr_tensor: Array | None = None,
    step_tensor: Array | None = None,
    clip_tensor: Array | None = None,
    found_inf_tensor: Array | None = None,
    rounding: Literal["nearest", "stochastic"] = 'nearest',
    decay: Literal["decoupled", "l2"] = 'decoupled',
    maximize: bool = False,
    amsgrad: bool = False,
    found_inf: bool = False,
    lr: float = 0.0,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-08,
    weight_decay: float = 0.0,
    clip: float = 1.0,
    step: int = 0,
    seed: int = 0,
    first_index: int = 0,
    copy_out: Sequence[Array] | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> AdamwResult:
    """params -= lr (mhat / (sqrt(vhat) + eps) + weight_decay params)

    Inputs:
        params: a list, each [dims...] bf16 f32; updated in place
        grads: a list, each [dims...] f16 bf16 f32
        m: a list, each [dims...] f32; updated in place
        v: a list, each [dims...] f32; updated in place
        params_low: a list, each [dims...] i16; updated in place
        lr_tensor: [scalar] f32; optional
        step_tensor: [scalar] i64; optional
        clip_tensor: [scalar] f32; optional
        found_inf_tensor: [scalar] f32 i64; optional

    Options:
        rounding: one of nearest, stochastic; default 'nearest'
        decay: one of decoupled, l2; default 'decoupled'
        maximize: bool; default False
        amsgrad: bool; default False
        found_inf: bool; default False
        lr: float; default 0.0
        beta1: float; default 0.9
        beta2: float; default 0.999
        eps: float; default 1e-08
        weight_decay: float; default 0.0
        clip: float; default 1.0
        step: int; default 0
        seed: int; default 0
        first_index: int; default 0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        copy_out: a list, each [dims...] f16 bf16 f32; made when True

    Returns AdamwResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class AddResult(NamedTuple):
    y: Array

def add(
    *,
    a: Array,
    b: Array,
    alpha: float = 1.0,
    beta: float = 1.0,
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> AddResult:
    """y = alpha a + beta b

    Inputs:
        a: [dims...] f16 bf16 f32
        b: [dims...] f16 bf16 f32

    Options:
        alpha: float; default 1.0
        beta: float; default 1.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [dims...] f16 bf16 f32; may be a or b

    Returns AddResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class AttentionForwardResult(NamedTuple):
    o: Array
    precise_output: Array | None
    row_max: Array | None
    row_log_sum: Array | None
    lse: Array | None

def attention_forward(
    *,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    bias: Array | None = None,
    alibi_slopes: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    causal: bool = False,
    scale: float = 0.0,
    softcap: float = 0.0,
    dropout: float = 0.0,
    causal_offset: int = -9223372036854775808,
    window_left: int = -1,
    window_right: int = -1,
    seed: int = 0,
    o: Array | DType | bool | None = None,
    precise_output: Array | DType | bool | None = None,
    row_max: Array | DType | bool | None = None,
    row_log_sum: Array | DType | bool | None = None,
    lse: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> AttentionForwardResult:
    """o = softmax(scale q k^T) v over the visible keys, in tiles

    Inputs:
        q: [batch heads seq_q head_dim] f16 bf16 f32; shares the call's dtype
        k: [batch kv_heads seq_k head_dim] f16 bf16 f32; shares the call's dtype
        v: [batch kv_heads seq_k value_dim] f16 bf16 f32; shares the call's dtype
        mask: [mask_batch mask_heads mask_q mask_k] u8 bool; optional
        bias: [bias_batch bias_heads bias_q bias_k] f16 bf16 f32; optional
        alibi_slopes: [heads] f16 bf16 f32; optional
        cu_seqlens_q: [sequences+1] i32; optional
        cu_seqlens_k: [sequences+1] i32; optional

    Options:
        causal: bool; default False
        scale: float; default 0.0
        softcap: float; default 0.0
        dropout: float; default 0.0
        causal_offset: int; default -9223372036854775808
        window_left: int; default -1
        window_right: int; default -1
        seed: int; default 0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        o: [batch heads seq_q value_dim] f16 bf16 f32; shares the call's dtype
        precise_output: [batch heads seq_q value_dim] f32; saved for backward, False leaves it out
        row_max: [batch heads seq_q] f32; any strides; saved for backward, False leaves it out
        row_log_sum: [batch heads seq_q] f32; any strides; saved for backward, False leaves it out
        lse: [batch heads seq_q] f32; any strides; made when True

    Returns AttentionForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class AttentionBackwardResult(NamedTuple):
    dq: Array | None
    dk: Array | None
    dv: Array | None
    dbias: Array | None
    dalibi_slopes: Array | None

def attention_backward(
    *,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    bias: Array | None = None,
    alibi_slopes: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    o: Array | None = None,
    precise_output: Array | None = None,
    row_max: Array | None = None,
    row_log_sum: Array | None = None,
    lse: Array | None = None,
    do: Array,
    causal: bool = False,
    accumulate: bool = False,
    scale: float = 0.0,
    softcap: float = 0.0,
    dropout: float = 0.0,
    causal_offset: int = -9223372036854775808,
    window_left: int = -1,
    window_right: int = -1,
    seed: int = 0,
    dq: Array | DType | bool | None = None,
    dk: Array | DType | bool | None = None,
    dv: Array | DType | bool | None = None,
    dbias: Array | DType | bool | None = None,
    dalibi_slopes: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> AttentionBackwardResult:
    """dv = P^T do; ds = P (do v^T - sum(do o)); dq = scale ds k; dk = scale ds^T q

    Inputs:
        q: [batch heads seq_q head_dim] f16 bf16 f32; shares the call's dtype
        k: [batch kv_heads seq_k head_dim] f16 bf16 f32; shares the call's dtype
        v: [batch kv_heads seq_k value_dim] f16 bf16 f32; shares the call's dtype
        mask: [mask_batch mask_heads mask_q mask_k] u8 bool; optional
        bias: [bias_batch bias_heads bias_q bias_k] f16 bf16 f32; optional
        alibi_slopes: [heads] f16 bf16 f32; optional
        cu_seqlens_q: [sequences+1] i32; optional
        cu_seqlens_k: [sequences+1] i32; optional
        o: [batch heads seq_q value_dim] f16 bf16 f32; shares the call's dtype; optional
        precise_output: [batch heads seq_q value_dim] f32; optional
        row_max: [batch heads seq_q] f32; any strides; optional
        row_log_sum: [batch heads seq_q] f32; any strides; optional
        lse: [batch heads seq_q] f32; any strides; optional
        do: [batch heads seq_q value_dim] f16 bf16 f32; shares the call's dtype

    Options:
        causal: bool; default False
        accumulate: bool; default False
        scale: float; default 0.0
        softcap: float; default 0.0
        dropout: float; default 0.0
        causal_offset: int; default -9223372036854775808
        window_left: int; default -1
        window_right: int; default -1
        seed: int; default 0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dq: [batch heads seq_q head_dim] f16 bf16 f32; shares the call's dtype; made when True
        dk: [batch kv_heads seq_k head_dim] f16 bf16 f32; shares the call's dtype; made when True
        dv: [batch kv_heads seq_k value_dim] f16 bf16 f32; shares the call's dtype; made when True
        dbias: [bias_batch bias_heads bias_q bias_k] f16 bf16 f32; made when True; added to with
            accumulate=True (f32)
        dalibi_slopes: [heads] f16 bf16 f32; made when True; added to with accumulate=True (f32)

    Returns AttentionBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class CastResult(NamedTuple):
    y: Array

def cast(
    *,
    x: Array,
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> CastResult:
    """y = x, rounded to nearest even in y's dtype

    Inputs:
        x: [dims...] f16 bf16 f32

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [dims...] f16 bf16 f32

    Returns CastResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class CrossEntropyForwardResult(NamedTuple):
    loss: Array
    z_loss_part: Array | None
    valid_count: Array | None
    row_max: Array | None
    row_log_sum: Array | None
    dlogits: Array | None

def cross_entropy_forward(
    *,
    logits: Array,
    target: Array,
    class_weight: Array | None = None,
    normalizer: Array | None = None,
    dloss: Array | None = None,
    reduction: Literal["none", "sum", "mean"],
    fuse_backward: bool = False,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    loss: Array | DType | bool | None = None,
    z_loss_part: Array | DType | bool | None = None,
    valid_count: Array | DType | bool | None = None,
    row_max: Array | DType | bool | None = None,
    row_log_sum: Array | DType | bool | None = None,
    dlogits: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> CrossEntropyForwardResult:
    """row loss = w (1 - s) (lse - u_t) + s (lse - mean(u)) + z_loss lse^2, u = softcap tanh(logit_scale x
    / softcap), lse = log sum exp(u)

    Inputs:
        logits: [rows... classes] f16 bf16 f32; shares the call's dtype
        target: [rows...] i32 i64; any strides
        class_weight: [classes] f16 bf16 f32; optional
        normalizer: [scalar] f32; optional
        dloss: [when(reduction=1) rows... | scalar] f32; any strides; optional

    Options:
        reduction: one of none, sum, mean; required
        fuse_backward: bool; default False
        ignore_index: int; default -100
        label_smoothing: float; default 0.0
        z_loss: float; default 0.0
        logit_scale: float; default 1.0
        softcap: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        loss: [when(reduction=1) rows... | scalar] f32; any strides
        z_loss_part: [when(reduction=1) rows... | scalar] f32; any strides; made when True
        valid_count: [scalar] i64; made when True
        row_max: [rows...] f32; any strides; saved for backward, False leaves it out
        row_log_sum: [rows...] f32; any strides; saved for backward, False leaves it out
        dlogits: [rows... classes] f16 bf16 f32; shares the call's dtype; made when True; may be logits

    Returns CrossEntropyForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class CrossEntropyBackwardResult(NamedTuple):
    dlogits: Array

def cross_entropy_backward(
    *,
    logits: Array,
    target: Array,
    class_weight: Array | None = None,
    normalizer: Array | None = None,
    row_max: Array,
    row_log_sum: Array,
    dloss: Array,
    reduction: Literal["none", "sum", "mean"],
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    dlogits: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> CrossEntropyBackwardResult:
    """dlogits = dloss / normalizer [(w (1 - s) + s + 2 z_loss lse) p - s / C - w (1 - s) 1{j = t}] du/dx

    Inputs:
        logits: [rows... classes] f16 bf16 f32; shares the call's dtype
        target: [rows...] i32 i64; any strides
        class_weight: [classes] f16 bf16 f32; optional
        normalizer: [scalar] f32; optional
        row_max: [rows...] f32; any strides
        row_log_sum: [rows...] f32; any strides
        dloss: [when(reduction=1) rows... | scalar] f32; any strides

    Options:
        reduction: one of none, sum, mean; required
        ignore_index: int; default -100
        label_smoothing: float; default 0.0
        z_loss: float; default 0.0
        logit_scale: float; default 1.0
        softcap: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dlogits: [rows... classes] f16 bf16 f32; shares the call's dtype; may be logits

    Returns CrossEntropyBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class EmbeddingForwardResult(NamedTuple):
    y: Array

def embedding_forward(
    *,
    ids: Array,
    weight: Array,
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> EmbeddingForwardResult:
    """y[r] = weight[ids[r]]

    Inputs:
        ids: [rows...] i32 i64; any strides
        weight: [vocab dim] f16 bf16 f32; shares the call's dtype

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [rows... dim] f16 bf16 f32; shares the call's dtype

    Returns EmbeddingForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class EmbeddingBackwardResult(NamedTuple):
    dweight: Array

def embedding_backward(
    *,
    dy: Array,
    ids: Array,
    accumulate: bool = False,
    dweight: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> EmbeddingBackwardResult:
    """dweight[v] = sum of dy[r] over rows r with ids[r] = v

    Inputs:
        dy: [rows... dim] f16 bf16 f32; shares the call's dtype
        ids: [rows...] i32 i64; any strides

    Options:
        accumulate: bool; default False

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dweight: [vocab dim] f16 bf16 f32; added to with accumulate=True (f32)

    Returns EmbeddingBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class FillResult(NamedTuple):
    y: Array

def fill(
    *,
    value: float = 0.0,
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> FillResult:
    """y = value

    Options:
        value: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [dims...] f16 bf16 f32

    Returns FillResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class GemmForwardResult(NamedTuple):
    c: Array
    preactivation: Array | None

def gemm_forward(
    *,
    a: Array,
    b: Array,
    bias: Array | None = None,
    activation: Literal["none", "silu", "sigmoid", "gelu_tanh", "gelu_erf", "quick_gelu", "relu", "relu2", "tanh"] = 'none',
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Array | DType | bool | None = None,
    preactivation: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> GemmForwardResult:
    """c = activation(alpha op(a) op(b) + beta c + bias)

    Inputs:
        a: [when(transpose_a=1) batch... k m | batch... m k] f16 bf16 f32
        b: [when(transpose_b=1) batch... n k | batch... k n] f16 bf16 f32
        bias: [n] f16 bf16 f32; optional

    Options:
        activation: one of none, silu, sigmoid, gelu_tanh, gelu_erf, quick_gelu, relu, relu2, tanh;
            default 'none'
        transpose_a: bool; default False
        transpose_b: bool; default False
        alpha: float; default 1.0
        beta: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        c: [batch... m n] f16 bf16 f32
        preactivation: [batch... m n] f16 bf16 f32; saved for backward, False leaves it out

    Returns GemmForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class GemmBackwardResult(NamedTuple):
    da: Array | None
    db: Array | None
    dbias: Array | None

def gemm_backward(
    *,
    dc: Array,
    a: Array | None = None,
    b: Array | None = None,
    preactivation: Array | None = None,
    activation: Literal["none", "silu", "sigmoid", "gelu_tanh", "gelu_erf", "quick_gelu", "relu", "relu2", "tanh"] = 'none',
    transpose_a: bool = False,
    transpose_b: bool = False,
    accumulate: bool = False,
    alpha: float = 1.0,
    da: Array | DType | bool | None = None,
    db: Array | DType | bool | None = None,
    dbias: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> GemmBackwardResult:
    """da = alpha dz op(b)^T; db = alpha op(a)^T dz; dbias = sum_rows dz; dz = dc
    activation'(preactivation)

    Inputs:
        dc: [batch... m n] f16 bf16 f32
        a: [when(transpose_a=1) batch... k m | batch... m k] f16 bf16 f32; optional
        b: [when(transpose_b=1) batch... n k | batch... k n] f16 bf16 f32; optional
        preactivation: [batch... m n] f16 bf16 f32; optional

    Options:
        activation: one of none, silu, sigmoid, gelu_tanh, gelu_erf, quick_gelu, relu, relu2, tanh;
            default 'none'
        transpose_a: bool; default False
        transpose_b: bool; default False
        accumulate: bool; default False
        alpha: float; default 1.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        da: [when(transpose_a=1) batch... k m | batch... m k] f16 bf16 f32; made when True
        db: [when(transpose_b=1) batch... n k | batch... k n] f16 bf16 f32; made when True; added to
            with accumulate=True (f32)
        dbias: [n] f16 bf16 f32; made when True; added to with accumulate=True (f32)

    Returns GemmBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class GemmI8Result(NamedTuple):
    c: Array

def gemm_i8(
    *,
    a: Array,
    b: Array,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> GemmI8Result:
    """c = alpha op(a) op(b) + beta c, the product exact

    Inputs:
        a: [when(transpose_a=1) batch... k m | batch... m k] i8
        b: [when(transpose_b=1) batch... n k | batch... k n] i8

    Options:
        transpose_a: bool; default False
        transpose_b: bool; default False
        alpha: float; default 1.0
        beta: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        c: [batch... m n] i32

    Returns GemmI8Result, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class GradNormResult(NamedTuple):
    norm: Array
    clip: Array | None
    nonfinite: Array | None

def grad_norm(
    *,
    grads: Sequence[Array],
    max_norm: float = 0.0,
    scale: float = 1.0,
    norm: Array | DType | bool | None = None,
    clip: Array | DType | bool | None = None,
    nonfinite: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> GradNormResult:
    """norm = scale sqrt(sum grads^2); clip = scale min(1, max_norm / (norm + 1e-6))

    Inputs:
        grads: a list, each [dims...] f16 bf16 f32

    Options:
        max_norm: float; default 0.0
        scale: float; default 1.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        norm: [scalar] f32
        clip: [scalar] f32; made when True
        nonfinite: [scalar] f32 i64; made when True

    Returns GradNormResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

def clip(
    *,
    grads: Sequence[Array],
    clip: Array,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> None:
    """grads = clip grads

    Inputs:
        grads: a list, each [dims...] f16 bf16 f32; updated in place
        clip: [scalar] f32

    Returns None.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class LayernormForwardResult(NamedTuple):
    y: Array
    residual_out: Array | None
    mean: Array | None
    rstd: Array | None

def layernorm_forward(
    *,
    x: Array,
    residual: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 0.0,
    y: Array | DType | bool | None = None,
    residual_out: Array | DType | bool | None = None,
    mean: Array | DType | bool | None = None,
    rstd: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> LayernormForwardResult:
    """y = (v - mean) rstd weight + bias, v = x (+ residual), rstd = 1/sqrt(mean((v - mean)^2) + eps)

    Inputs:
        x: [rows... cols] f16 bf16 f32
        residual: [rows... cols] f16 bf16 f32; optional
        weight: [cols] f16 bf16 f32; optional
        bias: [cols] f16 bf16 f32; optional

    Options:
        eps: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [rows... cols] f16 bf16 f32; may be x or residual
        residual_out: [rows... cols] f16 bf16 f32; made when True; may be x or residual
        mean: [rows...] f32; any strides; saved for backward, False leaves it out
        rstd: [rows...] f32; any strides; saved for backward, False leaves it out

    Returns LayernormForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class LayernormBackwardResult(NamedTuple):
    dx: Array | None
    dweight: Array | None
    dbias: Array | None

def layernorm_backward(
    *,
    dy: Array,
    x: Array,
    residual: Array | None = None,
    weight: Array | None = None,
    mean: Array,
    rstd: Array,
    dresidual_out: Array | None = None,
    accumulate: bool = False,
    dx: Array | DType | bool | None = None,
    dweight: Array | DType | bool | None = None,
    dbias: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> LayernormBackwardResult:
    """dx = rstd (gw - mean(gw) - c rstd^2 mean(gw c)), gw = dy weight, c = v - mean; dweight = sum_rows dy
    c rstd; dbias = sum_rows dy

    Inputs:
        dy: [rows... cols] f16 bf16 f32
        x: [rows... cols] f16 bf16 f32
        residual: [rows... cols] f16 bf16 f32; optional
        weight: [cols] f16 bf16 f32; optional
        mean: [rows...] f32; any strides
        rstd: [rows...] f32; any strides
        dresidual_out: [rows... cols] f16 bf16 f32; optional

    Options:
        accumulate: bool; default False

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dx: [rows... cols] f16 bf16 f32; made when True; may be dy or dresidual_out
        dweight: [cols] f16 bf16 f32; made when True; added to with accumulate=True (f32)
        dbias: [cols] f16 bf16 f32; made when True; added to with accumulate=True (f32)

    Returns LayernormBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class LinearCrossEntropyForwardResult(NamedTuple):
    loss: Array
    z_loss_part: Array | None
    valid_count: Array | None
    row_max: Array | None
    row_log_sum: Array | None
    dhidden: Array | None
    dweight: Array | None
    dbias: Array | None

def linear_cross_entropy_forward(
    *,
    hidden: Array,
    weight: Array,
    bias: Array | None = None,
    target: Array,
    class_weight: Array | None = None,
    normalizer: Array | None = None,
    dloss: Array | None = None,
    reduction: Literal["none", "sum", "mean"],
    accumulate: bool = False,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    loss: Array | DType | bool | None = None,
    z_loss_part: Array | DType | bool | None = None,
    valid_count: Array | DType | bool | None = None,
    row_max: Array | DType | bool | None = None,
    row_log_sum: Array | DType | bool | None = None,
    dhidden: Array | DType | bool | None = None,
    dweight: Array | DType | bool | None = None,
    dbias: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> LinearCrossEntropyForwardResult:
    """row loss = w (1 - s) (lse - u_t) + s (lse - mean(u)) + z_loss lse^2, u = softcap tanh(logit_scale x
    / softcap), x = hidden weight^T + bias

    Inputs:
        hidden: [rows... width] f16 bf16 f32; shares the call's dtype
        weight: [classes width] f16 bf16 f32
        bias: [classes] f16 bf16 f32; optional
        target: [rows...] i32 i64; any strides
        class_weight: [classes] f16 bf16 f32; optional
        normalizer: [scalar] f32; optional
        dloss: [when(reduction=1) rows... | scalar] f32; any strides; optional

    Options:
        reduction: one of none, sum, mean; required
        accumulate: bool; default False
        ignore_index: int; default -100
        label_smoothing: float; default 0.0
        z_loss: float; default 0.0
        logit_scale: float; default 1.0
        softcap: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        loss: [when(reduction=1) rows... | scalar] f32; any strides
        z_loss_part: [when(reduction=1) rows... | scalar] f32; any strides; made when True
        valid_count: [scalar] i64; made when True
        row_max: [rows...] f32; any strides; saved for backward, False leaves it out
        row_log_sum: [rows...] f32; any strides; saved for backward, False leaves it out
        dhidden: [rows... width] f16 bf16 f32; shares the call's dtype; made when True; may be hidden
        dweight: [classes width] f16 bf16 f32; made when True; added to with accumulate=True (f32)
        dbias: [classes] f16 bf16 f32; made when True; added to with accumulate=True (f32)

    Returns LinearCrossEntropyForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class LinearCrossEntropyBackwardResult(NamedTuple):
    dhidden: Array
    dweight: Array | None
    dbias: Array | None

def linear_cross_entropy_backward(
    *,
    hidden: Array,
    weight: Array,
    bias: Array | None = None,
    target: Array,
    class_weight: Array | None = None,
    normalizer: Array | None = None,
    row_max: Array,
    row_log_sum: Array,
    dloss: Array,
    reduction: Literal["none", "sum", "mean"],
    accumulate: bool = False,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    dhidden: Array | DType | bool | None = None,
    dweight: Array | DType | bool | None = None,
    dbias: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> LinearCrossEntropyBackwardResult:
    """dhidden = dx weight; dweight = dx^T hidden; dbias = sum_rows dx; dx as dlogits of cross_entropy

    Inputs:
        hidden: [rows... width] f16 bf16 f32; shares the call's dtype
        weight: [classes width] f16 bf16 f32
        bias: [classes] f16 bf16 f32; optional
        target: [rows...] i32 i64; any strides
        class_weight: [classes] f16 bf16 f32; optional
        normalizer: [scalar] f32; optional
        row_max: [rows...] f32; any strides
        row_log_sum: [rows...] f32; any strides
        dloss: [when(reduction=1) rows... | scalar] f32; any strides

    Options:
        reduction: one of none, sum, mean; required
        accumulate: bool; default False
        ignore_index: int; default -100
        label_smoothing: float; default 0.0
        z_loss: float; default 0.0
        logit_scale: float; default 1.0
        softcap: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dhidden: [rows... width] f16 bf16 f32; shares the call's dtype; may be hidden
        dweight: [classes width] f16 bf16 f32; made when True; added to with accumulate=True (f32)
        dbias: [classes] f16 bf16 f32; made when True; added to with accumulate=True (f32)

    Returns LinearCrossEntropyBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class NormGemvResult(NamedTuple):
    y: Array
    y2: Array | None
    y3: Array | None

def norm_gemv(
    *,
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    w: Array,
    w2: Array | None = None,
    w3: Array | None = None,
    norm: Literal["rms", "layer"],
    transpose_w: bool = False,
    eps: float = 0.0,
    weight_offset: float = 0.0,
    y: Array | DType | bool | None = None,
    y2: Array | DType | bool | None = None,
    y3: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> NormGemvResult:
    """y = Norm(x) w; y2 = Norm(x) w2; y3 = Norm(x) w3

    Inputs:
        x: [rows... k] f16 bf16 f32
        weight: [k] f16 bf16 f32; optional
        bias: [k] f16 bf16 f32; optional
        w: [when(transpose_w=1) n k | k n] f16 bf16 f32
        w2: [when(transpose_w=1) n2 k | k n2] f16 bf16 f32; optional
        w3: [when(transpose_w=1) n3 k | k n3] f16 bf16 f32; optional

    Options:
        norm: one of rms, layer; required
        transpose_w: bool; default False
        eps: float; default 0.0
        weight_offset: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [rows... n] f16 bf16 f32
        y2: [rows... n2] f16 bf16 f32; made when True
        y3: [rows... n3] f16 bf16 f32; made when True

    Returns NormGemvResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class RandomResult(NamedTuple):
    y: Array

def random(
    *,
    distribution: Literal["uniform", "normal", "bernoulli"],
    seed: int = 0,
    stream: int = 0,
    first_index: int = 0,
    low: float = 0.0,
    high: float = 1.0,
    mean: float = 0.0,
    std: float = 1.0,
    truncate: float = 0.0,
    probability: float = 0.0,
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> RandomResult:
    """y[i] = uniform, normal or bernoulli from word (first_index + i) of Philox(seed, stream)

    Options:
        distribution: one of uniform, normal, bernoulli; required
        seed: int; default 0
        stream: int; default 0
        first_index: int; default 0
        low: float; default 0.0
        high: float; default 1.0
        mean: float; default 0.0
        std: float; default 1.0
        truncate: float; default 0.0
        probability: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [dims...] f16 bf16 f32

    Returns RandomResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class RmsnormForwardResult(NamedTuple):
    y: Array
    residual_out: Array | None
    rstd: Array | None

def rmsnorm_forward(
    *,
    x: Array,
    residual: Array | None = None,
    weight: Array | None = None,
    rounding: Literal["once", "before_weight"] = 'once',
    eps: float = 0.0,
    weight_offset: float = 0.0,
    y: Array | DType | bool | None = None,
    residual_out: Array | DType | bool | None = None,
    rstd: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> RmsnormForwardResult:
    """y = v rstd (weight_offset + weight), v = x (+ residual), rstd = 1/sqrt(mean(v^2) + eps)

    Inputs:
        x: [rows... cols] f16 bf16 f32
        residual: [rows... cols] f16 bf16 f32; optional
        weight: [cols] f16 bf16 f32; optional

    Options:
        rounding: one of once, before_weight; default 'once'
        eps: float; default 0.0
        weight_offset: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [rows... cols] f16 bf16 f32; may be x or residual
        residual_out: [rows... cols] f16 bf16 f32; made when True; may be x or residual
        rstd: [rows...] f32; any strides; saved for backward, False leaves it out

    Returns RmsnormForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class RmsnormBackwardResult(NamedTuple):
    dx: Array | None
    dweight: Array | None

def rmsnorm_backward(
    *,
    dy: Array,
    x: Array,
    residual: Array | None = None,
    weight: Array | None = None,
    rstd: Array,
    dresidual_out: Array | None = None,
    rounding: Literal["once", "before_weight"] = 'once',
    accumulate: bool = False,
    weight_offset: float = 0.0,
    dx: Array | DType | bool | None = None,
    dweight: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> RmsnormBackwardResult:
    """dx = rstd (gw - v rstd^2 mean(gw v)), gw = dy (weight_offset + weight); dweight = sum_rows dy v rstd

    Inputs:
        dy: [rows... cols] f16 bf16 f32
        x: [rows... cols] f16 bf16 f32
        residual: [rows... cols] f16 bf16 f32; optional
        weight: [cols] f16 bf16 f32; optional
        rstd: [rows...] f32; any strides
        dresidual_out: [rows... cols] f16 bf16 f32; optional

    Options:
        rounding: one of once, before_weight; default 'once'
        accumulate: bool; default False
        weight_offset: float; default 0.0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dx: [rows... cols] f16 bf16 f32; made when True; may be dy or dresidual_out
        dweight: [cols] f16 bf16 f32; made when True; added to with accumulate=True (f32)

    Returns RmsnormBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class RopeForwardResult(NamedTuple):
    q_out: Array
    k_out: Array | None

def rope_forward(
    *,
    q: Array,
    k: Array | None = None,
    cos: Array,
    sin: Array,
    positions: Array | None = None,
    pairing: Literal["half", "interleaved"],
    q_out: Array | DType | bool | None = None,
    k_out: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> RopeForwardResult:
    """out1 = x1 cos - x2 sin; out2 = x2 cos + x1 sin

    Inputs:
        q: [batch... heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype
        k: [batch... kv_heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype; optional
        cos: [rows half | batch... seq half] f16 bf16 f32
        sin: [rows half | batch... seq half] f16 bf16 f32
        positions: [seq | batch... seq] i32 i64; any strides; optional

    Options:
        pairing: one of half, interleaved; required

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        q_out: [batch... heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype; may be q
        k_out: [batch... kv_heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype; made when
            True; may be k

    Returns RopeForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class RopeBackwardResult(NamedTuple):
    dq: Array | None
    dk: Array | None
    dcos: Array | None
    dsin: Array | None

def rope_backward(
    *,
    dq_out: Array,
    dk_out: Array | None = None,
    q: Array | None = None,
    k: Array | None = None,
    cos: Array,
    sin: Array,
    positions: Array | None = None,
    pairing: Literal["half", "interleaved"],
    accumulate: bool = False,
    dq: Array | DType | bool | None = None,
    dk: Array | DType | bool | None = None,
    dcos: Array | DType | bool | None = None,
    dsin: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> RopeBackwardResult:
    """dx1 = g1 cos + g2 sin; dx2 = g2 cos - g1 sin; dcos = sum g1 x1 + g2 x2; dsin = sum g2 x1 - g1 x2

    Inputs:
        dq_out: [batch... heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype
        dk_out: [batch... kv_heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype; optional
        q: [batch... heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype; optional
        k: [batch... kv_heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype; optional
        cos: [rows half | batch... seq half] f16 bf16 f32
        sin: [rows half | batch... seq half] f16 bf16 f32
        positions: [seq | batch... seq] i32 i64; any strides; optional

    Options:
        pairing: one of half, interleaved; required
        accumulate: bool; default False

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dq: [batch... heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype; made when True;
            may be dq_out
        dk: [batch... kv_heads seq dim | seq dim] f16 bf16 f32; shares the call's dtype; made when True;
            may be dk_out
        dcos: [rows half | batch... seq half] f16 bf16 f32; made when True; added to with
            accumulate=True (f32)
        dsin: [rows half | batch... seq half] f16 bf16 f32; made when True; added to with
            accumulate=True (f32)

    Returns RopeBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class RopeTablesResult(NamedTuple):
    cos: Array | None
    sin: Array | None
    inv_freq: Array | None

def rope_tables(
    *,
    positions: Array | None = None,
    scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = 'none',
    truncate: bool = True,
    base: float = 0.0,
    factor: float = 1.0,
    low_freq_factor: float = 0.0,
    high_freq_factor: float = 0.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    attention_scaling: float = 0.0,
    original_max_position: int = 0,
    cos: Array | DType | bool | None = None,
    sin: Array | DType | bool | None = None,
    inv_freq: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> RopeTablesResult:
    """cos = attention_scaling cos(position f_i), sin alike; f_i = base^(-i / half), scaled

    Inputs:
        positions: [rows...] i32 i64; any strides; optional

    Options:
        scaling: one of none, linear, ntk, yarn, llama3; default 'none'
        truncate: bool; default True
        base: float; default 0.0
        factor: float; default 1.0
        low_freq_factor: float; default 0.0
        high_freq_factor: float; default 0.0
        beta_fast: float; default 32.0
        beta_slow: float; default 1.0
        attention_scaling: float; default 0.0
        original_max_position: int; default 0

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        cos: [rows... half] f16 bf16 f32; made when True
        sin: [rows... half] f16 bf16 f32; made when True
        inv_freq: [half] f32; made when True

    Returns RopeTablesResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class SoftmaxForwardResult(NamedTuple):
    y: Array

def softmax_forward(
    *,
    x: Array,
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> SoftmaxForwardResult:
    """y = exp(x - m) / sum exp(x - m), m = max(x)

    Inputs:
        x: [rows... cols] f16 bf16 f32; shares the call's dtype

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [rows... cols] f16 bf16 f32; shares the call's dtype; may be x

    Returns SoftmaxForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class SoftmaxBackwardResult(NamedTuple):
    dx: Array

def softmax_backward(
    *,
    y: Array,
    dy: Array,
    dx: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> SoftmaxBackwardResult:
    """dx = y (dy - sum(y dy))

    Inputs:
        y: [rows... cols] f16 bf16 f32; shares the call's dtype
        dy: [rows... cols] f16 bf16 f32; shares the call's dtype

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dx: [rows... cols] f16 bf16 f32; shares the call's dtype; may be dy

    Returns SoftmaxBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class LogSoftmaxForwardResult(NamedTuple):
    y: Array

def log_softmax_forward(
    *,
    x: Array,
    y: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> LogSoftmaxForwardResult:
    """y = (x - m) - log sum exp(x - m), m = max(x)

    Inputs:
        x: [rows... cols] f16 bf16 f32; shares the call's dtype

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        y: [rows... cols] f16 bf16 f32; shares the call's dtype; may be x

    Returns LogSoftmaxForwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """

class LogSoftmaxBackwardResult(NamedTuple):
    dx: Array

def log_softmax_backward(
    *,
    y: Array,
    dy: Array,
    dx: Array | DType | bool | None = None,
    out: Array | Mapping[str, Array | DType | bool] | None = None,
    determinism: Literal["run_to_run", "batch_invariant", "unordered"] = 'run_to_run',
    precision: Literal["standard", "strict", "fast"] = 'standard',
    threads: int = 0,
    cuda_stream: int | None = None,
) -> LogSoftmaxBackwardResult:
    """dx = dy - exp(y) sum(dy)

    Inputs:
        y: [rows... cols] f16 bf16 f32; shares the call's dtype
        dy: [rows... cols] f16 bf16 f32; shares the call's dtype

    Outputs (an array, True to make one, a dtype to make it in, False to leave it out):
        dx: [rows... cols] f16 bf16 f32; shares the call's dtype; may be dy

    Returns LogSoftmaxBackwardResult, a named tuple of the outputs, None where one was not asked for.
    Determinism run_to_run, batch_invariant, unordered; precision standard, strict, fast.
    Raises TypeError (a wrong type or dtype), ValueError (a wrong shape, value or layout), traincore.Unsupported
    (a valid request that no kernel serves). Nothing is written by a call that raises.
    """
