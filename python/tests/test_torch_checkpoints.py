"""Checkpoints go both ways between `traincore train` and transformers: the same logits, and the same greedy text."""

import io
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from conftest import source_root
from torch_support import error, torch

transformers = pytest.importorskip("transformers")

PROMPT = b"the quick brown fox jumps over the lazy"


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


def train(folder: pathlib.Path, dtype: str) -> pathlib.Path:
    """A checkpoint after a few steps."""
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    sets = {"train.steps": 12, "train.out": folder / "run", "train.dtype": dtype, "model.dim": 64, "model.layers": 2,
            "model.heads": 4, "model.kv_heads": 2, "model.head_dim": 16, "model.ffn": 96, "model.context": 48,
            "train.eval_every": 0, "train.save_every": 12, "optim.warmup": 2}  # fmt: skip
    run("train", "--data", str(text), *[part for k, v in sets.items() for part in ("--set", f"{k}={v}")])
    return folder / "run" / "latest"


def our_logits(folder: pathlib.Path, ids: list[int]) -> torch.Tensor:
    printed = run("checkpoint", "logits", str(folder), "--tokens", *map(str, ids))
    return torch.from_numpy(np.loadtxt(io.BytesIO(printed)))


def their_logits(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def greedy(model, ids: list[int], count: int) -> list[int]:
    """The likeliest continuation, none of whose tokens was a close call."""
    ids, start = list(ids), len(ids)
    for _ in range(count):
        top = their_logits(model, ids)[-1].topk(2)
        assert float(top.values[0] - top.values[1]) > 1e-4
        ids.append(int(top.indices[0]))
    return ids[start:]


def sampled(folder: pathlib.Path, prompt: str, count: int) -> str:
    return run("sample", str(folder), "--prompt", prompt, "--tokens", str(count), "--temperature", "0").decode()


@pytest.mark.parametrize("dtype, budget", [("f32", 2e-6), ("bf16", 2e-2)])
def test_a_trained_checkpoint_loads_in_transformers(tmp_path, dtype, budget):
    latest = train(tmp_path, dtype)
    assert json.loads((latest / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    stored = torch.float32 if dtype == "f32" else torch.bfloat16
    model = transformers.LlamaForCausalLM.from_pretrained(latest, dtype="auto", attn_implementation="eager")
    assert model.dtype == stored
    found = our_logits(latest, list(PROMPT))
    assert error(found, their_logits(model.float(), list(PROMPT))) < budget


def test_a_trained_checkpoint_writes_the_same_text(tmp_path):
    latest = train(tmp_path, "f32")
    model = transformers.LlamaForCausalLM.from_pretrained(latest, dtype=torch.float32, attn_implementation="eager")
    expected = bytes(greedy(model, list(b"the qui"), 24)).decode(errors="replace")
    assert "the qui" + expected in sampled(latest, "the qui", 24)


def a_llama(**options):
    torch.manual_seed(1)
    settings = {"vocab_size": 53, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "head_dim": 12,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}  # fmt: skip
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings | options))
    for name, p in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(p, 1.0, 0.2)
    return model


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype, budget", [(torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float16, 4e-3)])
def test_a_transformers_model_gives_the_same_logits_in_traincore(tmp_path, tied, dtype, budget):
    model = a_llama(tie_word_embeddings=tied, rms_norm_eps=1e-4, rope_theta=500.0).to(dtype)
    model.save_pretrained(tmp_path)
    ids = [i * 7 % 53 for i in range(60)]
    assert error(our_logits(tmp_path, ids), their_logits(model.float(), ids)) < budget


def test_a_transformers_model_writes_the_same_text_in_traincore(tmp_path):
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
    model = a_llama(vocab_size=pieces.get_piece_size(), tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
        model.lm_head.weight[:3] = 0  # unknown, begin and end have no text
    model.save_pretrained(tmp_path)
    prompt = "the fox"
    assert prompt + pieces.decode(greedy(model, pieces.encode(prompt), 24)) in sampled(tmp_path, prompt, 24)
