#!/usr/bin/env bash
# A bare GPU machine made ready for rows.py: nothing is installed, and several runs share the GPU by MPS.
#
#   benchmarks/bare.sh WORK [WHEELS [DATA]]    from the top of a checkout
#   . WORK/env.sh && python benchmarks/rows.py TABLE data.root=$WORK/data/NAME $GPU --jobs 6 --minutes 9 --out lines.jsonl
#
# WORK gets the sources, WHEELS/*.whl unpacked (pure Python; what the machine lacks), and DATA. It ends with an error, and
# says so, where fairsilo cannot be imported there: better than a machine that waits for nothing. Rented machines are given
# back when idle: ask for what has run already, and copy lines.jsonl away early.
set -euo pipefail
work=$1 wheels=${2:-} data=${3:-}
mkdir -p "$work/site" "$work/data" "$work/mps" "$work/mps-log"
cp -r src benchmarks pyproject.toml "$work/"
if [ -n "$wheels" ]; then
  for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$work/site"; done
fi
if [ -n "$data" ]; then cp -r "$data"/. "$work/data/"; fi
cat > "$work/env.sh" <<END
export WORK=$work PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
export PYTHONPATH=$work/src:$work/site
export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps-log
GPU="engine.device=cuda engine.name=lanes engine.precision=tf32"
cd $work
END
. "$work/env.sh"
if command -v nvidia-cuda-mps-control > /dev/null; then nvidia-cuda-mps-control -d || echo "MPS runs already"; fi
python3 -c "import fairsilo, torch; print(f'fairsilo {fairsilo.__version__}, torch {torch.__version__}, GPU: {torch.cuda.is_available()}')"
