#!/usr/bin/env bash
# The Python package as its users meet it, each in a fresh environment: `pip install .` and `pip install -e .` with build
# isolation, then a wheel, on which the tests run.
#   python_test.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset TRAINCORE_LIBRARY PYTHONPATH
cd "$work"

# Makes an environment and installs into it: install NAME ARGUMENTS...
install() {
  python3 -m venv "$work/$1"
  "$work/$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
}
four_lines='
import numpy as np
from traincore.norms import rms_norm_forward, norm_backward
output, saved = rms_norm_forward(np.float32([[3, 4]]), np.ones(2, np.float32), epsilon=1e-6)
print(output.numpy(), norm_backward(saved, np.float32([[1, 2]])).source.numpy())'
expected='[[0.8485281 1.1313708]] [[-0.09050961  0.06788231]]'

for mode in "" --editable; do
  install "from_source$mode" --config-settings build-dir="$build-wheel" $mode "$source"
  found=$("$work/from_source$mode/bin/python" -c "$four_lines")
  [ "$found" = "$expected" ] || { echo "pip install $mode: four lines gave $found"; exit 1; }
done

"$source/scripts/wheel" "$work/dist" "$build-wheel"
ls "$work"/dist/traincore-*-py3-none-manylinux*.whl >/dev/null
install from_wheel "$work"/dist/*.whl pytest ml_dtypes
"$work/from_wheel/bin/python" -m pytest -q -p no:cacheprovider "$source/python/tests"
