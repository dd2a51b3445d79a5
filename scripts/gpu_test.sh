#!/usr/bin/env bash
# Runs a tree that was built elsewhere on this machine's GPU: every check mode, the kit's tests if traincore_kit_tests is
# there (beside the tool or in tests/), then the benches, as JSON.
#   scripts/gpu_test.sh [FOLDER with the traincore tool and its libraries] [FOLDER for the results] [op ...]
# GPU_TEST_EFFORT=--quick shortens it.
# Builds nothing. Exit status 1 if any check fails.
set -uo pipefail
tree=${1:-build/cuda}
results=${2:-bench/results}
shift $(($# < 2 ? $# : 2))
export LD_LIBRARY_PATH=$tree:$tree/cli:${LD_LIBRARY_PATH:-}
tool=$tree/traincore
mkdir -p "$results"
status=0
for mode in numbers capture determinism batch-invariance large; do
  "$tool" check "$@" ${GPU_TEST_EFFORT:-} --device cuda --$mode --json >"$results/check_$mode.json" || status=1
  python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(sys.argv[2], ":", r["total"] - r["failed"], "passed,", r["failed"], "failed")' \
    "$results/check_$mode.json" "$mode" || status=1
done
for kit in "$tree/traincore_kit_tests" "$tree/tests/traincore_kit_tests"; do
  [ -x "$kit" ] || continue
  "$kit" --gtest_brief=1 >"$results/kit_tests.txt" 2>&1 || status=1
  tail -n 5 "$results/kit_tests.txt"
  break
done
"$tool" bench "$@" --device cuda --dtype bf16 --seconds 0.2 --json >"$results/bench_cuda.json" || status=1
exit $status
