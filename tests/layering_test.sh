#!/usr/bin/env bash
# The layering check passes here, and fails where each kind of forbidden include is planted.   layering_test.sh SOURCE_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1/scripts/check_layering.py"
cp -r --parents "$1/scripts" "$1/traincore" "$1/cli" "$work"
cd "$work$1"
plant() {
  echo "#include \"$2\"" >"$1"
  if scripts/check_layering.py >/dev/null; then echo "$1 may include $2?"; exit 1; fi
  rm "$1"
}
plant traincore/core/planted.cpp traincore/ops/rmsnorm/rmsnorm.h
plant traincore/cpu/planted.h traincore/testing/cases.h
plant traincore/ops/rmsnorm/planted.cpp traincore/testing/cases.h
plant traincore/ops/rope/planted.cpp traincore/ops/rmsnorm/plan.h
plant traincore/train/planted.cpp cli/command.h
plant traincore/ops/rope/planted.cpp traincore/training.h
plant traincore/kit/planted.cpp traincore/cpu/gemm.h
plant traincore/planted.h traincore/train/config.h
plant traincore/core/planted.h traincore/cuda/reduce.cuh
echo '#include <torch/extension.h>' >traincore/core/planted.cpp
if scripts/check_layering.py >/dev/null; then echo "torch is let in?"; exit 1; fi
