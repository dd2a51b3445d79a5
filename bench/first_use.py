"""What the first call of the library on a GPU costs: its kernels are loaded there, so that no later launch waits for it.

    python3 bench/first_use.py [DEVICE ...]        cuda:0 by itself

torch makes the CUDA context and a stream's allocator before the clock starts; then the same call twice."""

import sys
import time

import torch

import traincore as tc


def milliseconds(x, y) -> float:
    start = time.perf_counter()
    tc.ops.cast(x=x, y=y)
    torch.cuda.synchronize(x.device)
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    for device in sys.argv[1:] or ["cuda:0"]:
        x = torch.ones(1000, device=device)
        y = torch.empty_like(x)
        (x + y).sum().item()
        first, second = milliseconds(x, y), milliseconds(x, y)
        print(f"{device}: first call {first:.1f} ms, second {second:.3f} ms")


if __name__ == "__main__":
    main()
