#!/usr/bin/env python3
"""Makes traincore/ops/<name>: a complete op (y = x^2, forward and backward) that builds and passes every check as it
stands. Change the formula in oracle.cpp first, then the kernels until `traincore check <name> --all` passes again."""
import argparse
import keyword
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "scripts" / "new_op_template"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="snake_case, e.g. softplus")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the repository (default: this one)")
    args = parser.parse_args()
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", args.name) or keyword.iskeyword(args.name):
        sys.exit(f"new_op: {args.name!r} is no snake_case name, like softplus or cross_entropy")
    folder = args.root / "traincore" / "ops" / args.name
    if folder.exists():
        sys.exit(f"new_op: {folder} already exists")
    folder.mkdir()
    for source in sorted(TEMPLATE.iterdir()):
        target = folder / source.name.replace("op.", args.name + ".")
        target.write_text(source.read_text().replace("@op@", args.name))
    print(f"new_op: {folder.relative_to(args.root)} is y = x^2; next:")
    print(f"  cmake --build --preset release && build/release/traincore check {args.name} --all --quick")


if __name__ == "__main__":
    main()
