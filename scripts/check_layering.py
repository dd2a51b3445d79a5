#!/usr/bin/env python3
"""Fails when a file includes what its layer may not see. The layers, lowest first:
core <- cpu, cuda <- ops <- kit, graph, jit, dist <- train <- cli; testing sees core, cpu, cuda.
The headers traincore/*.h are the kit's."""
import os
import pathlib
import re
import sys

MAY_INCLUDE = {
    "core": set(),
    "cpu": {"core"},
    "cuda": {"core"},
    "testing": {"core", "cpu", "cuda"},
    "ops": {"core", "cpu", "cuda"},
    "kit": {"core", "cuda", "ops"},
    "graph": {"core", "ops"},
    "jit": {"core", "cpu", "cuda"},
    "dist": {"core", "cuda", "ops"},
    "train": {"core", "ops", "kit", "graph", "jit", "dist"},
    "cli": {"core", "cpu", "cuda", "ops", "kit", "graph", "jit", "dist", "train", "testing", "cli"},
}
FRAMEWORKS = re.compile(r'#include [<"](torch|ATen|c10|numpy|Python\.h|pybind11)')


def layer_of(parts):
    if parts[0] != "traincore":
        return parts[0]
    return parts[1] if len(parts) > 2 else "kit"


def violations(path: pathlib.Path):
    text = path.read_text()
    layer = layer_of(path.parts)
    if FRAMEWORKS.search(text):
        yield f"{path}: a framework header"
    for include in re.findall(r'#include "((?:traincore|cli)/[^"]+)"', text):
        parts = include.split("/")
        other = layer_of(parts)
        if path.suffix == ".h" and include.endswith(".cuh"):
            yield f"{path}: a .h may not include {include}"
        if path.suffix == ".cuh" and include.endswith(".h") and other != "core":
            yield f"{path}: a .cuh may not include the host header {include}"
        if layer == other == "ops":
            if parts[2] != path.parts[2] and parts[3] != parts[2] + ".h":
                yield f"{path}: {include} is private to {parts[2]}"
        elif other != layer and other not in MAY_INCLUDE[layer]:
            if not (other == "testing" and path.name.startswith("cases")):
                yield f"{path}: {layer} may not include {include}"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    files = [
        f.relative_to(root)
        for top in ("traincore", "cli")
        for f in sorted((root / top).rglob("*"))
        if f.suffix in {".h", ".cpp", ".cu", ".cuh"}
    ]
    os.chdir(root)
    bad = [v for f in files for v in violations(f)]
    print("\n".join(bad) if bad else f"layering: {len(files)} files, no violation")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
