#!/usr/bin/env python3
"""A run that is killed with SIGKILL, again and again, and resumed each time is the run that never stopped: the same loss at
every step, the same bytes of weights.   train_kill_test.py TRAINCORE"""
import hashlib
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

TOOL = sys.argv[1]
STEPS = 40
KILLS = 6
SMALL = {
    "model.dim": 32, "model.layers": 2, "model.heads": 4, "model.kv_heads": 2, "model.head_dim": 8, "model.ffn": 48,
    "model.context": 32, "train.batch": 4, "train.micro_batch": 2, "train.steps": STEPS, "train.save_every": 3,
    "train.eval_every": 5, "train.threads": 2, "train.keep": 2, "optim.warmup": 4, "sample.tokens": 20,
}  # fmt: skip


def command(out, text, *more):
    sets = [f"--set={key}={value}" for key, value in {**SMALL, "train.out": out}.items()]
    return [TOOL, "train", "--preset", "tiny", "--data", str(text), *sets, *more]


def losses(out):
    lines = (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()
    return {line["step"]: (line["loss"], line.get("validation_loss")) for line in map(json.loads, lines)}


def weights(out):
    return hashlib.sha256((pathlib.Path(out) / "latest" / "model.safetensors").read_bytes()).hexdigest()


def holds_checkpoint(out):
    return out.exists() and any(re.fullmatch(r"step-\d+", entry.name) for entry in out.iterdir())


def steps_written(out):
    metrics = pathlib.Path(out) / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def reaches(process, out, steps):
    """Waits until the run has written so many steps; false if it ended before."""
    while process.poll() is None:
        if steps_written(out) >= steps:
            return True
        time.sleep(0.0005)
    return False


def run(folder):
    text = folder / "text.txt"
    text.write_bytes(b"".join(b"line %d of a text that repeats itself, mostly\n" % (i % 97) for i in range(600)))
    whole, broken = folder / "whole", folder / "broken"
    subprocess.run(command(whole, text), check=True, capture_output=True)

    random.seed(1)
    kills = 0
    resume = []
    for _ in range(KILLS + 1):
        log = folder / "log.txt"
        with log.open("wb") as sink:
            process = subprocess.Popen(command(broken, text, *resume), stdout=sink, stderr=subprocess.STDOUT)
        if kills < KILLS and reaches(process, broken, steps_written(broken) + random.randint(1, 8)):
            time.sleep(random.uniform(0, 0.005))
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            resume = ["--resume"] if holds_checkpoint(broken) else []
            if not (broken / "latest").exists():  # killed before the first checkpoint, or before the link to it
                continue
            verify = subprocess.run([TOOL, "checkpoint", "verify", str(broken / "latest")], capture_output=True, text=True)
            assert verify.returncode == 0, verify.stdout + verify.stderr
            continue
        process.wait(timeout=120)
        assert process.returncode == 0, log.read_text(errors="replace")
        break
    assert kills >= 1, "the run was never killed"
    assert losses(broken) == losses(whole), "the losses differ from those of the run that never stopped"
    assert len(losses(whole)) == STEPS
    assert weights(broken) == weights(whole), "the weights differ"

    again = subprocess.run(command(whole, text), capture_output=True, text=True)
    assert again.returncode == 2 and "already holds a run" in again.stderr, again.stderr
    sample = [TOOL, "sample", str(whole), "--prompt", "line ", "--tokens", "12", "--seed", "3"]
    first, second = (subprocess.run(sample, capture_output=True).stdout for _ in range(2))
    assert first and first == second, "the same seed wrote another text"
    print(f"killed {kills} times, resumed, and bit for bit the run that never stopped")


start = time.time()
with tempfile.TemporaryDirectory() as name:
    run(pathlib.Path(name))
print(f"{time.time() - start:.1f}s")
