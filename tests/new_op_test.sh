#!/usr/bin/env bash
# CONTRIBUTING.md's first step, as written there: a new folder, no other edit, and the op is in the tool and passes.
#   new_op_test.sh SOURCE_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$1"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work"
cd "$work"
scripts/new_op.py softplus
[ "$(ls traincore/ops | wc -l)" -eq "$(($(ls "$1/traincore/ops" | wc -l) + 1))" ]
if scripts/new_op.py softplus 2>/dev/null; then echo "an op was overwritten"; exit 1; fi
if scripts/new_op.py Bad-Name 2>/dev/null; then echo "a bad name was taken"; exit 1; fi
scripts/check_layering.py
cmake -S . -B build -G Ninja -DTC_OPS=softplus -DTC_BUILD_TESTS=OFF -DTC_SIMD=static >/dev/null
cmake --build build --target traincore >/dev/null
build/traincore check softplus --all --quick
rm -r traincore/ops/softplus
