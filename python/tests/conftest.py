"""Fixtures and helpers of the Python tests."""

import importlib.util
import pathlib

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_torch_*.py"]


def source_root() -> pathlib.Path | None:
    """The repository, where the tests run from it; None where they run from a copy."""
    root = pathlib.Path(__file__).resolve().parents[2]
    return root if (root / "CMakeLists.txt").exists() else None


@pytest.fixture
def root() -> pathlib.Path:
    found = source_root()
    if found is None:
        pytest.skip("needs the repository")
    return found


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
