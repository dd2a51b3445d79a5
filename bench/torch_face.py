"""The torch face, autograd and launches included, beside PyTorch eager, torch.compile and Liger, on one GPU.

    python3 bench/torch_face.py [--json FILE] [--dtype bf16] [--only NAME ...]

Every competitor runs the same operation on the same tensors, forward alone and forward with backward, in turns: one
round times each of them once, so that clocks and heat are shared. Inputs are random and rotate through copies that do
not fit the L2 cache. Times are GPU time between events, the median of the rounds."""

import argparse
import json
import platform
import statistics
import time

import torch
import torch.nn.functional as F

import traincore as tc
import traincore.torch as tct

L2_BYTES = 64 << 20
WARMUP = 5


def plain_rmsnorm(x, w):
    return F.rms_norm(x, w.shape, w, 1e-6)


def plain_swiglu(gate, up):
    return F.silu(gate) * up


def plain_rope(q, k, cos, sin):
    def turn(x):
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    return turn(q), turn(k)


def plain_cross_entropy(logits, target):
    return F.cross_entropy(logits.float(), target)


def plain_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


# name: (shapes, ours, plain). A shape that is an integer n is a target below n for every row of the first tensor.
CASES = {
    "rmsnorm": ([(8192, 4096), (4096,)], lambda x, w: tct.rmsnorm(x, w, 1e-6), plain_rmsnorm),
    "add_rmsnorm": (
        [(8192, 4096), (8192, 4096), (4096,)], lambda x, a, w: tct.add_rmsnorm(x, a, w, 1e-6),
        lambda x, a, w: (plain_rmsnorm(x + a, w), x + a),
    ),
    "layernorm": (
        [(8192, 4096), (4096,), (4096,)], lambda x, w, b: tct.layernorm(x, w, b), lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    ),
    "swiglu": ([(8192, 14336), (8192, 14336)], tct.swiglu, plain_swiglu),
    "rope": ([(4, 32, 2048, 128), (4, 8, 2048, 128), (2048, 64), (2048, 64)], tct.rope, plain_rope),
    "softmax": ([(8192, 8192)], tct.softmax, lambda x: x.softmax(-1)),
    "cross_entropy": ([(4096, 128256), 128256], tct.cross_entropy, plain_cross_entropy),
    "attention": (
        [(4, 32, 2048, 128), (4, 8, 2048, 128), (4, 8, 2048, 128)], lambda q, k, v: tct.attention(q, k, v, causal=True),
        plain_attention,
    ),
}  # fmt: skip


def liger(name: str):
    """Liger's function of the same signature, if it is installed and has one."""
    try:
        from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction
    except ImportError:
        return None
    return {
        "rmsnorm": lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6),
        "swiglu": LigerSiLUMulFunction.apply,
        "cross_entropy": lambda x, t: LigerCrossEntropyFunction.apply(x, t, None, -100)[0],
    }.get(name)


def make_inputs(shapes, dtype):
    made = []
    for shape in shapes:
        if isinstance(shape, int):
            made.append(torch.randint(shape, made[0].shape[:-1], device="cuda"))
        else:
            made.append(torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True))
    return made


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def timed(function, given, seeds, backward: bool) -> float:
    """Milliseconds of one run."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    if backward:
        found = as_tuple(function(*given))
        torch.autograd.grad(found, [t for t in given if t.requires_grad], seeds)
    else:
        with torch.no_grad():
            function(*given)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def race_direction(competitors: dict, sets: list, backward: bool, rounds: int) -> dict:
    """The median of each competitor's rounds; of one that cannot run, why."""
    times: dict[str, list[float]] = {who: [] for who in competitors}
    seeds, refused = {}, {}
    for step in range(WARMUP + rounds):
        given = sets[step % len(sets)]
        for who, function in competitors.items():
            if who in refused:
                continue
            try:
                if who not in seeds:
                    seeds[who] = [torch.ones_like(f) for f in as_tuple(function(*given))]
                times[who].append(timed(function, given, seeds[who], backward))
            except Exception as error:
                refused[who] = f"{type(error).__name__}: {error}".splitlines()[0]
    return {who: refused.get(who) or statistics.median(t[WARMUP:]) for who, t in times.items()}


def race(name: str, dtype, rounds: int) -> dict:
    shapes, ours, plain = CASES[name]
    competitors = {"traincore": ours, "eager": plain, "compile": torch.compile(plain), "liger": liger(name)}
    competitors = {who: function for who, function in competitors.items() if function is not None}
    one = make_inputs(shapes, dtype)
    copies = 1 + L2_BYTES // sum(t.numel() * t.element_size() for t in one)
    sets = [one] + [make_inputs(shapes, dtype) for _ in range(copies)]
    return {
        direction: race_direction(competitors, sets, direction != "forward", rounds)
        for direction in ("forward", "forward_backward")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f16", "f32"])
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[options.dtype]
    report = {
        "machine": torch.cuda.get_device_name(), "host": platform.processor() or platform.machine(),
        "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__, "traincore": tc.__version__,
        "dtype": options.dtype, "unit": "ms", "cases": {},
    }  # fmt: skip
    for name in options.only:
        report["cases"][name] = race(name, dtype, options.rounds)
        for direction, times in report["cases"][name].items():
            shown = "  ".join(
                f"{who} {t:.3f}" if isinstance(t, float) else f"{who}: {t[:80]}" for who, t in times.items()
            )
            print(f"{name:14} {direction:17} {shown}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
