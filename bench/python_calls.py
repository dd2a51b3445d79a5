"""What a call through Python costs beside the C call: RMSNorm of one row of 8, so that the kernel is next to nothing.

Thread CPU time, the best of several runs: a busy machine spoils wall time."""

import time

import numpy as np

import traincore as tc
from traincore._call import prepare


def microseconds(function, count: int = 2000, runs: int = 9) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.thread_time_ns()
        for _ in range(count):
            function()
        best = min(best, (time.thread_time_ns() - start) / count / 1000)
    return best


def report(name: str, x, weight, y, rstd) -> None:
    forward = tc.ops.rmsnorm_forward
    given = microseconds(lambda: forward(x=x, weight=weight, eps=1e-6, y=y, rstd=rstd))
    made = microseconds(lambda: forward(x=x, weight=weight, eps=1e-6))
    print(f"{name:6} outputs given {given:5.1f} us   two allocations {made:5.1f} us")


def main() -> None:
    x, weight, y, rstd = (
        np.ones((1, 8), np.float32),
        np.ones(8, np.float32),
        np.empty((1, 8), np.float32),
        np.empty(1, np.float32),
    )
    pass_ = tc.ops.PASSES["rmsnorm_forward"]
    args, _ = prepare(pass_, (x, None, weight), pass_.scalar_values({"eps": 1e-6}), (y, None, rstd))
    print(f"C call alone         {microseconds(lambda: pass_.function(args.memory, None)):5.1f} us")
    report("NumPy", x, weight, y, rstd)
    try:
        import torch
    except ImportError:
        return
    for device in ("cpu", "cuda"):
        if device in pass_.devices and (device == "cpu" or torch.cuda.is_available()):
            report(device, *(torch.from_numpy(a.copy()).to(device) for a in (x, weight, y, rstd)))


if __name__ == "__main__":
    main()
