#!/usr/bin/env bash
# What scale runs predict of one rank and of two, against what a server does (docs/SIMULATION.md, "Scale runs"). Rates are for each second
# of the server's CPU: what else runs on the machine takes time from both sides, but not from that. Costs are measured in the same rounds.
#
#   HOSTS=6 TASKS=48 FILES=50000         sessions, requests under way in each, files of each
#   ROUNDS=3                             of each rate and each cost the median counts
#   COSTS=FILE                           instead of measuring them
#   OUT=FILE                             the cost file that was measured goes there
#   CPU=0 LOAD_CPU=1 DISK=DIR RUN=""     as costs.sh; two ranks have both CPUs, and share them with what loads them
set -eu
cd "$(dirname "$0")/../.."
. scripts/env.sh
HOSTS=${HOSTS:-6} TASKS=${TASKS:-48} FILES=${FILES:-50000} ROUNDS=${ROUNDS:-3} CPU=${CPU:-0} LOAD_CPU=${LOAD_CPU:-1}
DISK=${DISK:-$CACHE/figures} COSTS=${COSTS:-} OUT=${OUT:-} RUN=${RUN:-}
cargo build --release -q -p server --example scale_costs
cargo build --release -q -p sim
mkdir -p "$DISK"
work=$(mktemp -d "$DISK/scale.XXXXXX")
trap 'rm -rf "$work"' EXIT
measure="$CARGO_TARGET_DIR/release/examples/scale_costs"
for round in $(seq "$ROUNDS"); do
    [ -n "$COSTS" ] || $RUN taskset -c "$LOAD_CPU" "$measure" costs "$work" "$CPU" 1 >"$work/costs.$round"
    $RUN taskset -c "$LOAD_CPU" "$measure" rates "$work" "$CPU" 1 "$HOSTS" "$TASKS" "$FILES" | tee "$work/measured.1.$round"
    $RUN taskset -c "$CPU,$LOAD_CPU" "$measure" rates "$work" "$CPU,$LOAD_CPU" 2 "$HOSTS" "$TASKS" "$FILES" | tee "$work/measured.2.$round"
done
if [ -z "$COSTS" ]; then
    COSTS=$work/costs
    bench/scale/medians.sh "$work"/costs.[0-9]* >"$COSTS"
    [ -z "$OUT" ] || cp "$COSTS" "$OUT"
    cat "$COSTS"
fi

# beside NAME: what a comment of the cost file says.
beside() {
    awk -v name="$1" '$1 == "#" && $2 == name { print $3 }' "$COSTS"
}
# predict RANKS CPUS WORKLOAD [OPTION...]
predict() {
    local ranks=$1 cpus=$2 workload=$3
    shift 3
    "$CARGO_TARGET_DIR/release/sim" scale --costs "$COSTS" --ranks "$ranks" --placement hash --workload "$workload" --hosts "$HOSTS" \
        --tasks $((HOSTS * TASKS / ranks)) --operations $((HOSTS * FILES)) --seconds 60 --network-us 10 --journal-mib 16 \
        --journal-us "$(beside sync-ns | awk '{ print $1 / 1e3 }')" --client-cpus "$cpus" --client-batch-ns "$(beside client-batch-ns)" \
        --client-message-ns "$(beside client-message-ns)" "$@" 2>/dev/null | awk 'NR > 1 { print $1, $6 }' >>"$work/predicted.$ranks"
}
for ranks in 1 2; do
    cpus=$([ "$ranks" = 1 ] && echo one || echo ranks)
    small="--cache-mib 4 --store-us 4 --dirs $((HOSTS * FILES / 200)) --files $((HOSTS * FILES))"
    predict "$ranks" "$cpus" mdtest
    predict "$ranks" "$cpus" random-read $small
    predict "$ranks" "$cpus" mixed $small
    printf '\n%-8s %5s %10s %10s %7s   (ops for each second of CPU; median of %s)\n' phase ranks measured predicted off "$ROUNDS"
    while read -r phase predicted; do
        measured=$(awk -v phase="$phase" '$1 == phase { print $4 }' "$work/measured.$ranks".* | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }')
        awk -v phase="$phase" -v ranks="$ranks" -v m="$measured" -v p="$predicted" \
            'BEGIN { printf "%-8s %5d %10.0f %10.0f %+6.0f%%\n", phase, ranks, m, p, (p / m - 1) * 100 }'
    done <"$work/predicted.$ranks"
done
