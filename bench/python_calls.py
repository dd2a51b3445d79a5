"""What a call through Python costs beside the C call: RMSNorm of one row of 8, so that the kernel is next to nothing.

The best of several runs: on the CPU of thread time, since a busy machine spoils wall time; on a GPU of wall time until the
call has returned, since the backward pass runs on a thread of its own and nobody waits for kernels.
"""

import time

import numpy as np

import traincore as tc
from traincore._call import make_exec, prepare

PASS = tc.ops.PASSES["rmsnorm_forward"]


def microseconds(function, clock, count: int = 1000, runs: int = 15) -> float:
    best = float("inf")
    for _ in range(runs):
        start = clock()
        for _ in range(count):
            function()
        best = min(best, (clock() - start) / count / 1000)
    return best


def report_ops(name: str, clock, x, weight, y, rstd) -> None:
    args, _ = prepare(PASS, (x, None, weight), PASS.scalar_values({"eps": 1e-6}), (y, None, rstd))
    how, _, _ = make_exec(PASS, args, "run_to_run", "standard", 0, None)
    forward = tc.ops.rmsnorm_forward
    calls = {
        "C call alone": lambda: PASS.function(args.memory, how),
        "outputs given": lambda: forward(x=x, weight=weight, eps=1e-6, y=y, rstd=rstd),
        "two allocations": lambda: forward(x=x, weight=weight, eps=1e-6),
    }
    print(f"{name:6}", *(f"{said} {microseconds(call, clock):5.1f} us  " for said, call in calls.items()))


def report_torch(name: str, clock, torch, x, weight) -> None:
    import traincore.torch as tct

    dy = torch.ones_like(x)
    for tensor in (x, weight):
        tensor.requires_grad_()
    for face, norm in (
        ("traincore.torch.rmsnorm", lambda: tct.rmsnorm(x, weight, 1e-6)),
        ("F.rms_norm", lambda: torch.nn.functional.rms_norm(x, (8,), weight, 1e-6)),
    ):

        def there_and_back(norm=norm):
            return torch.autograd.grad(norm(), (x, weight), dy)

        with torch.no_grad():
            plain = microseconds(norm, clock)
        tracked, both = microseconds(norm, clock), microseconds(there_and_back, clock, count=200)
        print(f"{name:6} {face:23} {plain:5.1f} us   with grad {tracked:5.1f} us   and backward {both:5.1f} us")


def main() -> None:
    arrays = np.ones((1, 8), np.float32), np.ones(8, np.float32), np.empty((1, 8), np.float32), np.empty(1, np.float32)
    report_ops("NumPy", time.thread_time_ns, *arrays)
    try:
        import torch
    except ImportError:
        return
    for device, clock in (("cpu", time.thread_time_ns), ("cuda", time.perf_counter_ns)):
        if device in PASS.devices and (device == "cpu" or torch.cuda.is_available()):
            tensors = [torch.from_numpy(a.copy()).to(device) for a in arrays]
            report_ops(device, clock, *tensors)
            report_torch(device, clock, torch, *tensors[:2])


if __name__ == "__main__":
    main()
