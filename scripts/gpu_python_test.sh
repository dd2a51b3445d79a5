#!/usr/bin/env bash
# The Python tests and the benches of the torch face on this machine's GPU, with a library that was built elsewhere.
#   scripts/gpu_python_test.sh [FOLDER with libtraincore.so] [FOLDER for the results]
# Builds nothing; needs python3 with numpy, pytest and torch. Exit status 1 if any test fails.
set -uo pipefail
tree=$(realpath "${1:-build/cuda}")
results=${2:-bench/results}
export LD_LIBRARY_PATH=$tree:$tree/cli:${LD_LIBRARY_PATH:-}
export TRAINCORE_LIBRARY=$tree/libtraincore.so TRAINCORE_TOOL=$tree/traincore
export PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
mkdir -p "$results"
status=0
python3 -m pytest -q -rs -p no:cacheprovider python/tests 2>&1 | tee "$results/python_tests_gpu.txt" || status=1
python3 bench/torch_face.py --json "$results/torch_face.json" || status=1
python3 bench/python_calls.py | tee "$results/python_calls.txt"
python3 bench/first_use.py | tee "$results/first_use.txt"
exit $status
