#!/usr/bin/env bash
# Runs a tree that was built elsewhere on this machine's GPU: every check mode, the kit's tests if traincore_kit_tests is
# there (beside the tool or in tests/), then the benches, as JSON.
#   scripts/gpu_test.sh [FOLDER with the traincore tool and its libraries] [FOLDER for the results] [op ...]
# GPU_TEST_EFFORT=--quick shortens it; GPU_TEST_DEVICE="cuda:0 cuda:1" shares the checks between GPUs; GPU_TEST_NO_BENCH=1
# leaves the benches out. Ops, modes and dtypes are checked side by side, one on every processor; only cases of more than 2^31
# elements have a GPU for themselves, and the benches the first one. Builds nothing. Exit status 1 if any check fails.
set -uo pipefail
tree=${1:-build/cuda}
results=${2:-bench/results}
shift $(($# < 2 ? $# : 2))
read -ra devices <<<"${GPU_TEST_DEVICE:-cuda}"
export LD_LIBRARY_PATH=$tree:$tree/cli:${LD_LIBRARY_PATH:-}
export tool=$tree/traincore parts=$results/parts effort=${GPU_TEST_EFFORT:-}
rm -rf "$parts"  # of another run
mkdir -p "$parts"
ops=${*:-$("$tool" ops --json | python3 -c 'import json, sys
print(*[o["op"] for o in json.load(sys.stdin) if any("cuda" in p["devices"] for p in o["passes"])])')}
# Those that take longest start first, so that no processor is left with one of them at the end.
longest=(softmax activation cross_entropy layernorm rmsnorm embedding)
# shellcheck disable=SC2086  # the ops are words
mapfile -t ops < <(
  printf '%s\n' "${longest[@]}" | grep -Fx "$(printf '%s\n' $ops)"
  printf '%s\n' $ops | grep -Fxv "$(printf '%s\n' "${longest[@]}")"
)
status=0

# check MODE OP DTYPE DEVICE: the results go to MODE.OP.DTYPE.json
check() {
  # shellcheck disable=SC2086  # no effort is no argument
  "$tool" check "$2" $effort --dtype "$3" --device "$4" "--$1" --json >"$parts/$1.$2.$3.json" 2>"$parts/$1.$2.$3.err"
}
export -f check
jobs=0
for op in "${ops[@]}"; do
  for mode in numbers capture determinism batch-invariance; do
    for dtype in f32 bf16 f16; do echo "$mode $op $dtype ${devices[jobs++ % ${#devices[@]}]}"; done
  done
done | xargs -P "$(nproc)" -L 1 bash -c 'check "$@"' check || status=1
# One op on a GPU at a time, in its one dtype.
large() {
  local op failed=0
  while read -r op; do check large "$op" bf16 "$1" </dev/null || failed=1; done
  return $failed
}
running=()
for device in "${!devices[@]}"; do
  for ((i = device; i < ${#ops[@]}; i += ${#devices[@]})); do echo "${ops[i]}"; done | large "${devices[device]}" &
  running+=($!)
done
for pid in "${running[@]}"; do wait "$pid" || status=1; done

python3 - "$results" <<'P' || status=1
import glob, json, sys
results, failed = sys.argv[1], False
for mode in ("numbers", "capture", "determinism", "batch-invariance", "large"):
    whole = {"checks": [], "failures": [], "total": 0, "failed": 0}
    for path in sorted(glob.glob(f"{results}/parts/{mode}.*.json")):
        try:
            part = json.load(open(path))
        except ValueError:
            print(mode, ":", path, "is no result:", open(path[:-4] + "err").read().strip()[-300:])
            failed = True
            continue
        for key in whole:
            whole[key] += part[key]
    json.dump(whole, open(f"{results}/check_{mode}.json", "w"), indent=1)
    print(mode, ":", whole["total"] - whole["failed"], "passed,", whole["failed"], "failed")
    failed |= whole["failed"] > 0 or whole["total"] == 0
sys.exit(failed)
P
for kit in "$tree/traincore_kit_tests" "$tree/tests/traincore_kit_tests"; do
  [ -x "$kit" ] || continue
  "$kit" --gtest_brief=1 >"$results/kit_tests.txt" 2>&1 || status=1
  tail -n 5 "$results/kit_tests.txt"
  break
done
[ -n "${GPU_TEST_NO_BENCH:-}" ] && exit $status
"$tool" bench "${ops[@]}" --device "${devices[0]}" --dtype bf16 --seconds 0.2 --json >"$results/bench_cuda.json" || status=1
exit $status
