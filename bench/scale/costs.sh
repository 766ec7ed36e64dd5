#!/usr/bin/env bash
# Measures the cost file of scale runs (docs/SIMULATION.md, "Scale runs"): bench/scale/costs.txt, or OUT.
#
#   CPU=0 LOAD_CPU=1   of the server, and of what loads it
#   ROUNDS=5           of each cost the median counts
#   RUN="nice -n -15"  before what is measured, if others use the machine
#   DISK=DIR           a folder on the disk to measure; one is made in it, and removed
set -eu
cd "$(dirname "$0")/../.."
. scripts/env.sh
CPU=${CPU:-0} LOAD_CPU=${LOAD_CPU:-1} ROUNDS=${ROUNDS:-5} DISK=${DISK:-$CACHE/figures} OUT=${OUT:-bench/scale/costs.txt} RUN=${RUN:-}
cargo build --release -q -p server --example scale_costs
mkdir -p "$DISK"
work=$(mktemp -d "$DISK/scale.XXXXXX")
trap 'rm -rf "$work"' EXIT
$RUN taskset -c "$LOAD_CPU" "$CARGO_TARGET_DIR/release/examples/scale_costs" costs "$work" "$CPU" "$ROUNDS" >"$work/costs"
{
    echo "# ROUNDS=$ROUNDS bench/scale/costs.sh, $(date -u +%Y-%m-%d), $(git rev-parse --short HEAD), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    cat "$work/costs"
} >"$OUT"
cat "$OUT"
