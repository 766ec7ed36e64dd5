#!/usr/bin/env bash
# What scale runs predict of one rank, against what a server does (docs/SIMULATION.md, "Scale runs"). Rates are for each second of the
# server's CPU: what else runs on the machine takes time from both sides, but not from that.
#
#   HOSTS=6 TASKS=48 FILES=50000   sessions, requests under way in each, files of each
#   CPU=0 LOAD_CPU=1 DISK=DIR      as costs.sh
set -eu
cd "$(dirname "$0")/../.."
. scripts/env.sh
HOSTS=${HOSTS:-6} TASKS=${TASKS:-48} FILES=${FILES:-50000} CPU=${CPU:-0} LOAD_CPU=${LOAD_CPU:-1} DISK=${DISK:-$CACHE/figures}
COSTS=${COSTS:-bench/scale/costs.txt}
cargo build --release -q -p server --example scale_costs
cargo build --release -q -p sim
mkdir -p "$DISK"
work=$(mktemp -d "$DISK/scale.XXXXXX")
trap 'rm -rf "$work"' EXIT
taskset -c "$LOAD_CPU" "$CARGO_TARGET_DIR/release/examples/scale_costs" rates "$work" "$CPU" "$HOSTS" "$TASKS" "$FILES" | tee "$work/measured"

# client NAME: what a comment of the cost file says.
client() {
    awk -v name="$1" '$1 == "#" && $2 == name { print $3 }' "$COSTS"
}
# predict PHASE WORKLOAD [OPTION...]: with the time that a commit took in that phase.
predict() {
    local phase=$1 workload=$2 commit
    shift 2
    commit=$(awk -v phase="$phase" '$1 == phase { print ($9 > 20000) ? 200 : $9 }' "$work/measured")
    "$CARGO_TARGET_DIR/release/sim" scale --costs "$COSTS" --ranks 1 --workload "$workload" --hosts "$HOSTS" --tasks $((HOSTS * TASKS)) \
        --network-us 10 --journal-us "$commit" --journal-mib 16 --client-cpus one --client-batch-ns "$(client client-batch-ns)" \
        --client-message-ns "$(client client-message-ns)" "$@" 2>/dev/null | awk -v phase="$phase" '$1 == phase { print phase, $6 }' >>"$work/predicted"
}
small="--cache-mib 4 --store-us 4 --dirs $((HOSTS * FILES / 200)) --files $((HOSTS * FILES))"
predict create mdtest --seconds 3
predict stat mdtest --seconds 1
predict read random-read --seconds 1 $small
predict mixed mixed --seconds 1 $small
predict remove mdtest --seconds 2
printf '\n%-8s %12s %12s %8s\n' phase measured predicted off
awk 'NR == FNR { measured[$1] = $4; next } { printf "%-8s %12.0f %12.0f %+7.0f%%\n", $1, measured[$1], $2, ($2 / measured[$1] - 1) * 100 }' \
    "$work/measured" "$work/predicted"
