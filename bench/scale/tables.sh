#!/usr/bin/env bash
# Scale runs of every workload under every placement, and mdtest with as many tasks for any number of ranks: tables with their commands,
# and pictures (docs/SIMULATION.md, "Scale runs").
#
#   OUT=docs/results/NAME        NAME.txt gets the tables, the folder NAME the pictures
#   RUNS="mdtest-hash ..."       only these: WORKLOAD-PLACEMENT, and mdtest-hash-160 for the last
#   RANKS=1,2,4,8,16             of all but the last, which has TOTAL_RANKS=1,2,4,8,16,32,64,128
#   OPTIONS="--seconds ..."      of all runs but mdtest's, which have MDTEST="...": there is as much to remove as was made before
#   JOBS=2                       runs at a time: each of them has one thread
#   SIM=FILE COSTS=FILE          another program, other costs
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/env.sh
OUT=${OUT:-docs/results/$(date -u +%Y-%m-%d)-scale} JOBS=${JOBS:-2} COSTS=${COSTS:-bench/scale/costs.txt} SIM=${SIM:-} RUNS=${RUNS:-}
RANKS=${RANKS:-1,2,4,8,16} TOTAL_RANKS=${TOTAL_RANKS:-1,2,4,8,16,32,64,128}
OPTIONS=${OPTIONS:---seconds 0.05 --warm-seconds 0.1 --dirs 100000} MDTEST=${MDTEST:---seconds 0.1 --warm-seconds 0.05 --journal-mib 1}
[ -n "$SIM" ] || { cargo build --release -q -p sim; SIM=$CARGO_TARGET_DIR/release/sim; }
mkdir -p "$OUT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# one NAME OPTION...: a run; its table, its pictures.
one() {
    local name=$1 command
    shift
    case $name in mdtest-*) set -- "$@" $MDTEST ;; *) set -- "$@" $OPTIONS ;; esac
    command="scale $* --costs $COSTS"
    { printf '\nsim %s\n' "$command"; "$SIM" $command --svg "$work/$name" 2>>"$work/errors"; } >"$work/$name.txt" || touch "$work/failed"
    for picture in "$work/$name"/*.svg; do
        [ ! -e "$picture" ] || cp "$picture" "$OUT/$name-$(basename "$picture")"
    done
}
names=""
begin() {
    case " ${RUNS:-$1} " in *" $1 "*) ;; *) return ;; esac
    names="$names $1"
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
    one "$@" &
}
for workload in mdtest random-read mixed rename-storm one-directory; do
    for placement in subtree distributed hash; do
        begin "$workload-$placement" --ranks "$RANKS" --workload "$workload" --placement "$placement"
    done
done
begin mdtest-hash-160 --ranks "$TOTAL_RANKS" --workload mdtest --placement hash --tasks-total 160
wait
[ ! -e "$work/failed" ] || { cat "$work/errors" >&2; exit 1; }
{
    echo "bench/scale/tables.sh, release build; costs: $COSTS. All times are virtual."
    for name in $names; do cat "$work/$name.txt"; done
} >"$OUT.txt"
