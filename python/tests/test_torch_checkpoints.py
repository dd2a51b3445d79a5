"""Checkpoints go both ways between `traincore train` and transformers: the same greedy text, token by token."""

import json
import os
import pathlib
import subprocess

import pytest
from conftest import source_root
from torch_support import torch

transformers = pytest.importorskip("transformers")


def tool() -> str:
    chosen = os.environ.get("TRAINCORE_TOOL")
    root = source_root()
    found = (
        [chosen] if chosen else [str(p) for p in sorted((root or pathlib.Path("/nowhere")).glob("build/*/traincore"))]
    )
    for path in found:
        if os.access(path, os.X_OK):
            return path
    pytest.skip("needs the traincore command: build it, or name it in TRAINCORE_TOOL")


def run(*arguments: str) -> bytes:
    done = subprocess.run([tool(), *arguments], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def greedy(model, ids: list[int], count: int) -> list[int]:
    """The likeliest continuation, none of whose tokens was a close call."""
    ids, start = list(ids), len(ids)
    with torch.no_grad():
        for _ in range(count):
            top = model(torch.tensor([ids])).logits[0, -1].topk(2)
            assert float(top.values[0] - top.values[1]) > 1e-4
            ids.append(int(top.indices[0]))
    return ids[start:]


def sampled(folder: pathlib.Path, prompt: str, count: int) -> str:
    return run("sample", str(folder), "--prompt", prompt, "--tokens", str(count), "--temperature", "0").decode()


def test_a_trained_checkpoint_loads_in_transformers(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    sets = {"train.steps": 12, "train.out": tmp_path / "run", "model.dim": 64, "model.layers": 2, "model.heads": 4,
            "model.kv_heads": 2, "model.head_dim": 16, "model.ffn": 96, "model.context": 48, "train.eval_every": 0,
            "train.save_every": 12, "optim.warmup": 2}  # fmt: skip
    run("train", "--data", str(text), *[part for k, v in sets.items() for part in ("--set", f"{k}={v}")])
    latest = tmp_path / "run" / "latest"
    assert json.loads((latest / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    model = transformers.LlamaForCausalLM.from_pretrained(latest, dtype=torch.float32, attn_implementation="eager")
    prompt = "the qui"
    expected = bytes(greedy(model, list(prompt.encode()), 24)).decode(errors="replace")
    assert prompt + expected in sampled(latest, prompt, 24)


def test_a_transformers_model_loads_in_traincore(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    words = [
        "the",
        "quick",
        "brown",
        "fox",
        "jumps",
        "over",
        "the",
        "lazy",
        "dog",
        "while",
        "five",
        "boxing",
        "wizards",
        "jump",
    ]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words * 20), model_prefix=str(tmp_path / "tokenizer"), vocab_size=48, model_type="bpe",
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "tokenizer.model"))
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=pieces.get_piece_size(), hidden_size=48, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
        model.lm_head.weight[:3] = 0  # unknown, begin and end have no text
    model.save_pretrained(tmp_path)
    prompt = "the fox"
    ids = pieces.encode(prompt)
    assert prompt + pieces.decode(greedy(model, ids, 24)) in sampled(tmp_path, prompt, 24)
