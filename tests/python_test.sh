#!/usr/bin/env bash
# The Python package as its users meet it: a wheel, installed in a fresh environment and tested there.
#   python_test.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/scripts/wheel" "$work/dist" "$build-wheel"
ls "$work"/dist/traincore-*-py3-none-manylinux*.whl >/dev/null
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$work"/dist/*.whl pytest ml_dtypes
cd "$work"
env -u TRAINCORE_LIBRARY -u PYTHONPATH "$work/venv/bin/python" -m pytest -q -p no:cacheprovider "$source/python/tests"
