#!/usr/bin/env python3
"""TrainCore beside PyTorch and torch.compile on one GPU: the same tensors, in one process, in interleaved rounds.

    python3 bench/peers.py [--rounds 7] [--json FILE] [--only TEXT]

Every implementation is captured into a CUDA graph that runs it on several sets of random tensors, a gigabyte or more together, so
that neither launch gaps nor the L2 cache take part. Printed: the median time of a call and, over the fewest bytes, GB/s.
Needs torch with CUDA and traincore (PYTHONPATH=python, TRAINCORE_LIBRARY=... or installed)."""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F

import traincore.ops as ops

FOOTPRINT = 1 << 30


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


class Case:
    """sets() makes one set of tensors; implementations are functions of a set."""

    def __init__(self, name, nbytes, sets, implementations):
        self.name, self.nbytes, self.sets, self.implementations = name, nbytes, sets, implementations


def rms(x, w, eps=1e-6):
    return F.rms_norm(x, (x.shape[-1],), w, eps)


def backward_of(function):
    """Gradients with respect to the set's inputs; the forward runs once, outside what is timed."""

    def prepare(s):
        inputs = [t.detach().requires_grad_() for t in s["inputs"]]
        y = function(*inputs)
        return lambda: torch.autograd.grad(y, inputs, s["dy"], retain_graph=True)

    prepare.prepares = True
    return prepare


def norm_cases():
    for rows, cols in [(32768, 1024), (32768, 4096), (16384, 8192), (8192, 32768), (2048, 131072), (131072, 128)]:
        n = rows * cols * 2

        def sets(rows=rows, cols=cols):
            x, w = random(rows, cols), random(cols)
            s = {"x": x, "w": w, "y": torch.empty_like(x), "rstd": torch.empty(rows, device="cuda"), "inputs": [x, w]}
            s |= {"dy": random(rows, cols), "dx": torch.empty_like(x), "dw": torch.empty(cols, device="cuda")}
            ops.rmsnorm_forward(x=x, weight=w, eps=1e-6, out={"y": s["y"], "rstd": s["rstd"]})
            return s

        yield Case(f"rmsnorm_forward {rows}x{cols} bf16", 2 * n, sets, {
            "traincore": lambda s: ops.rmsnorm_forward(x=s["x"], weight=s["w"], eps=1e-6, out={"y": s["y"], "rstd": s["rstd"]}),
            "torch": lambda s: rms(s["x"], s["w"]),
            "compile": (lambda f: lambda s: f(s["x"], s["w"]))(torch.compile(rms)),
        })  # fmt: skip
        yield Case(f"rmsnorm_backward {rows}x{cols} bf16", 3 * n, sets, {
            "traincore": lambda s: ops.rmsnorm_backward(dy=s["dy"], x=s["x"], weight=s["w"], rstd=s["rstd"],
                                                        out={"dx": s["dx"], "dweight": s["dw"]}),
            "torch": backward_of(rms),
            "compile": backward_of(torch.compile(rms)),
        })  # fmt: skip


def captured(implementation, sets):
    calls = [implementation(s) for s in sets] if getattr(implementation, "prepares", False) else [
        (lambda s=s: implementation(s)) for s in sets]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls * 2:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = [call() for call in calls]
    graph.replay()
    torch.cuda.synchronize()
    return graph, kept


def measure(case, rounds):
    count = max(2, -(-FOOTPRINT // case.nbytes))
    sets = [case.sets() for _ in range(min(count, 64))]
    graphs = {}
    for name, implementation in case.implementations.items():
        try:
            graphs[name] = captured(implementation, sets)
        except Exception as error:  # a peer that refuses a shape is a result too
            print(f"{case.name}: {name} failed: {str(error).splitlines()[0][:100]}", flush=True)
    times = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, (graph, _) in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / len(sets))
    return {name: statistics.median(t) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    results = []
    for case in norm_cases():
        if arguments.only not in case.name:
            continue
        ms = measure(case, arguments.rounds)
        results.append({"case": case.name, "ms": ms})
        best = min(ms.values())
        print(f"{case.name:36}", *(f"{n} {t:.4f} ms ({case.nbytes / t * 1e-6:.0f} GB/s{', best' if t == best else ''})" for n, t in ms.items()), flush=True)
        torch.cuda.empty_cache()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
