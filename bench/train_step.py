#!/usr/bin/env python3
"""A training step of the 124m preset on the CPU: `traincore train` beside the same model in PyTorch, in interleaved rounds.

    python3 bench/train_step.py [--rounds 5] [--threads 2] [--dtype f32 bf16] [--json FILE]

Both make whole optimizer steps of B4 T256 with the same shapes: forward, cross entropy, backward, clipping, AdamW. `traincore train`
runs as its users run it; it is stopped (SIGSTOP) while the other works, and timed from outside, from SIGCONT to the next line of
its metrics. Each round also times a 2048^3 product, by TrainCore and by PyTorch: the faster is the machine's rate. Figures are the
best of the rounds; the share is model FLOPs over (step time x rate), where model FLOPs are three times the forward's: 2 an element
of every matrix and token, and 4 a visible pair of attention and element of a head.

PyTorch trains in bf16 as its users may write it, under autocast or with bf16 parameters and f32 masters, or in f32 if that is
faster on this machine; the fastest is kept.
Needs torch and traincore (PYTHONPATH=python, TRAINCORE_LIBRARY=... or installed)."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

DIM, LAYERS, HEADS, HEAD_DIM, FFN, VOCAB, BATCH, TIME = 768, 12, 12, 64, 2048, 50304, 4, 256  # the preset's
PATIENCE = 60  # seconds a step


def model_flops():
    matrices = LAYERS * (4 * DIM * DIM + 3 * DIM * FFN) + VOCAB * DIM
    pairs = BATCH * LAYERS * HEADS * TIME * (TIME + 1) // 2
    return 3 * (2 * matrices * BATCH * TIME + 4 * pairs * HEAD_DIM)


class TrainCoreStep:
    """`traincore train` in a process of its own, stopped between steps."""

    name = "traincore"

    def __init__(self, tool, dtype, threads, folder):
        import numpy as np

        data, out = folder / f"{dtype}.bin", folder / dtype
        np.random.default_rng(1).integers(0, VOCAB, 1 << 20, dtype=np.uint16).tofile(data)
        values = {"train.dtype": dtype, "train.threads": threads, "train.out": out, "model.context": TIME}
        values |= {"train.batch": BATCH, "train.micro_batch": BATCH, "train.eval_every": 0, "train.save_every": 0}
        settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        self.metrics, self.log = out / "metrics.jsonl", open(folder / f"{dtype}.log", "w+")
        self.process = subprocess.Popen([tool, "train", "--preset", "124m", "--data", data, *settings], stdout=self.log, stderr=self.log)
        self.seen = 0
        self.wait_for_step()  # the first touches memory and makes oneDNN's kernels

    def wait_for_step(self):
        while not self.metrics.exists() or (size := self.metrics.stat().st_size) <= self.seen:
            if self.process.poll() is not None:
                raise SystemExit(f"traincore train ended: {pathlib.Path(self.log.name).read_text()}")
            time.sleep(0.001)
        self.process.send_signal(signal.SIGSTOP)
        self.seen = size

    def __call__(self):
        self.process.send_signal(signal.SIGCONT)
        self.wait_for_step()

    def close(self):
        self.process.kill()
        self.process.wait()


def torch_model(torch):
    """Llama as a PyTorch user writes it, with q, k, v in one matrix and gate, up in one as TrainCore has them."""
    from torch import nn
    import torch.nn.functional as F

    inverse = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.outer(torch.arange(TIME), inverse).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()

    def rotated(x):
        half = torch.cat((-x[..., HEAD_DIM // 2 :], x[..., : HEAD_DIM // 2]), -1)
        return x * cos.to(x.dtype) + half * sin.to(x.dtype)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.RMSNorm(DIM, 1e-5), nn.RMSNorm(DIM, 1e-5)
            self.qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
            self.gate_up, self.down = nn.Linear(DIM, 2 * FFN, bias=False), nn.Linear(FFN, DIM, bias=False)

        def forward(self, x):
            q, k, v = (t.view(BATCH, TIME, HEADS, HEAD_DIM).transpose(1, 2) for t in self.qkv(self.attention_norm(x)).chunk(3, -1))
            o = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
            x = x + self.out(o.transpose(1, 2).reshape(BATCH, TIME, DIM))
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.layers = nn.Embedding(VOCAB, DIM), nn.ModuleList(Layer() for _ in range(LAYERS))
            self.norm, self.head = nn.RMSNorm(DIM, 1e-5), nn.Linear(DIM, VOCAB, bias=False)
            self.head.weight = self.embedding.weight
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x)
            return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCAB), targets.view(-1))

    return Llama()


class TorchStep:
    def __init__(self, torch, policy):
        self.torch, self.name, self.policy = torch, f"torch {policy}", policy
        torch.manual_seed(1)
        self.model = torch_model(torch)
        self.parameters = list(self.model.parameters())
        self.masters = self.parameters
        if policy == "bf16 parameters":
            self.masters = [p.detach().clone() for p in self.parameters]
            self.model.bfloat16()
        groups = [{"params": [p for p in self.masters if p.dim() == 2], "weight_decay": 0.1},
                  {"params": [p for p in self.masters if p.dim() == 1], "weight_decay": 0.0}]  # fmt: skip
        self.optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)

    def __call__(self):
        torch = self.torch
        tokens = torch.randint(VOCAB, (BATCH, TIME + 1))
        autocast = torch.autocast("cpu", torch.bfloat16) if self.policy == "bf16 autocast" else contextlib.nullcontext()
        with autocast:
            loss = self.model(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        own_masters = self.masters is not self.parameters
        if own_masters:
            for p, master in zip(self.parameters, self.masters):
                master.grad, p.grad = p.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if own_masters:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)
        loss.item()

    def close(self):
        self.model = self.parameters = self.masters = self.optimizer = None


def seconds(f):
    time.sleep(0.1)  # threads of whoever worked before have gone to sleep
    begin = time.perf_counter()
    f()
    return time.perf_counter() - begin


def product_rate(torch, dtype, n):
    """What torch.mm makes of an n^3 product, FLOP/s."""
    a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    return 2 * n**3 / min(seconds(lambda: torch.mm(a, b)) for _ in range(4))


def torch_step(torch, dtype):
    """The fastest way that PyTorch has of training on this machine: where it is slow in bf16, f32 is."""
    policies = {"f32": ["f32"], "bf16": ["bf16 autocast", "bf16 parameters", "f32"]}[dtype]
    if dtype == "bf16":
        at_least = model_flops() / product_rate(torch, torch.bfloat16, 512)
        print(f"  torch in bf16: its products alone take {at_least:.1f} s a step", flush=True)
        if at_least > PATIENCE:
            policies = ["f32"]
    tried = {}
    for policy in policies if len(policies) > 1 else []:
        step = TorchStep(torch, policy)
        step()
        tried[policy] = seconds(step)
        step.close()
        print(f"  {step.name}: {tried[policy]:.2f} s in a first try", flush=True)
    step = TorchStep(torch, min(tried, key=tried.get) if tried else policies[0])
    step()
    return step


def products(torch, ops, dtype, threads):
    """2048^3 products to time; PyTorch's only where it is not hopeless."""
    n, torch_dtype = 2048, {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    a, b, c = (torch.randn(n, n).to(torch_dtype) for _ in range(3))

    def traincore():
        ops.gemm_forward(a=a, b=b, out={"c": c}, threads=threads)

    traincore()
    slow = dtype == "bf16" and product_rate(torch, torch_dtype, 512) < model_flops() / PATIENCE
    return {"traincore": traincore} | ({} if slow else {"torch": lambda: torch.mm(a, b, out=c)})


def measure(arguments, torch, ops, dtype, folder):
    print(f"{dtype}:", flush=True)
    gemms = products(torch, ops, dtype, arguments.threads)
    steps = [TrainCoreStep(arguments.tool, dtype, arguments.threads, folder), torch_step(torch, dtype)]
    times, gemm_times = {s.name: [] for s in steps}, {name: [] for name in gemms}
    for _ in range(arguments.rounds):
        for name, gemm in gemms.items():
            gemm_times[name] += [seconds(gemm) for _ in range(5)]
        for step in steps:
            times[step.name].append(seconds(step))
    for step in steps:
        step.close()
    rates = {name: 2 * 2048**3 / min(t) * 1e-9 for name, t in gemm_times.items()}
    rate = max(rates.values())
    print("  2048^3: " + ", ".join(f"{name} {r:.0f} GFLOP/s" for name, r in rates.items()))
    result = {"gemm_gflops": rates, "steps": {}}
    for name, t in times.items():
        best, share = min(t), model_flops() / min(t) / rate * 1e-9
        print(f"  {name:22} {best:.3f} s  {BATCH * TIME / best:.0f} tokens/s  {model_flops() / best * 1e-9:.0f} GFLOP/s, {share:.0%} of the product", flush=True)
        result["steps"][name] = {"seconds": [round(x, 4) for x in t], "share_of_gemm": round(share, 4)}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default="build/release/traincore", help="the traincore tool")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", nargs="+", default=["f32", "bf16"], choices=["f32", "bf16"])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    import torch
    import traincore.ops as ops

    torch.set_num_threads(arguments.threads)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in arguments.dtype:
            results[dtype] = measure(arguments, torch, ops, dtype, pathlib.Path(folder))
    if arguments.json:
        cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
        head = {"machine": cpu, "date": datetime.date.today().isoformat(), "threads": arguments.threads, "torch": torch.__version__}
        pathlib.Path(arguments.json).write_text(json.dumps(head | {"model_gflops": model_flops() * 1e-9} | results, indent=1) + "\n")


if __name__ == "__main__":
    main()
