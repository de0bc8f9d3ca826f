#!/usr/bin/env bash
# The last look at a rented machine: waits until rows.py has made all runs in WORK, at most SECONDS, then interrupts what is
# left, and packs it into OUT (keep.tgz.aa and so on, at most 15 MB each), so that it goes on elsewhere with `rows.py --folder`.
#
#   benchmarks/end.sh WORK OUT SECONDS
set -uo pipefail
work=$(realpath "$1") out=$2

running() { # the scripts that were started in WORK
  for process in $(pgrep -f benchmarks/rows.py); do
    if [ "$(readlink "/proc/$process/cwd")" = "$work" ]; then echo "$process"; fi
  done
}

wait_for() {
  for ((second = 0; second < $1; second++)); do
    [ -n "$(running)" ] || return
    sleep 1
  done
}

wait_for "$3"
running | xargs -r kill -INT
wait_for 35
bash "$(dirname "$0")/look.sh" "$work" "$out"
cp "$work"/*.log "$out"/ 2> /dev/null
cd "$work" && tar -cz keep* 2> /dev/null | split -b 15M - "$out/keep.tgz."
