#!/usr/bin/env bash
# How far the runs are that rows.py makes in WORK (bare.sh), after SECONDS of sleep; their lines go to OUT.
#
#   benchmarks/look.sh WORK OUT [SECONDS]
#
# Give rows.py --out NAME.jsonl, --folder keep-NAME and > NAME.log. A rented machine that goes back when idle is kept by the next
# look alone: ask for several at once, each with some minutes of sleep, before you think about what the first one says.
# The last call is for end.sh.
set -uo pipefail
work=$1 out=$2
sleep "${3:-0}"
cd "$work"
for log in *.log; do echo "== $log" && tail -n 4 "$log"; done
for log in keep*/*.log; do echo "$log: $(tr '\r' '\n' < "$log" | tail -n 1 | cut -c 1-150)"; done
nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader 2> /dev/null
uptime
cp ./*.jsonl "$out"/ 2> /dev/null
# runs whose rows.py was ended still leave their line in their folder
for kept in keep*; do cat "$kept"/*.l > "$out/$kept.lines" 2> /dev/null; done
true
