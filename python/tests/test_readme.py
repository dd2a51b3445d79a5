"""The Python in the READMEs runs as it is written."""

import importlib.util
import re

import pytest


@pytest.mark.parametrize("page", ["README.md", "python/README.md"])
def test_python_blocks_run(root, page):
    blocks = re.findall(r"```python\n(.*?)```", (root / page).read_text(), re.S)
    assert blocks
    for block in blocks:
        if "import torch" in block and importlib.util.find_spec("torch") is None:
            continue
        exec(compile(block, page, "exec"), {})


def test_the_example_runs(root, capsys):
    exec(compile((root / "examples/hello.py").read_text(), "hello.py", "exec"), {})
    assert "refused: rmsnorm_forward: eps is 0, but must be > 0" in capsys.readouterr().out
