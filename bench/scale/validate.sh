#!/usr/bin/env bash
# What scale runs predict of one rank and of two, against what a server does (docs/SIMULATION.md, "Scale runs"): operations per second, and
# for each second of the server's CPU. What else runs on the machine takes from the first, and much less from the second.
# Of two ranks that share their CPUs with what loads them costs are measured so, too: the same loads, as costs.sh has them.
#
#   HOSTS=6 TASKS=48 FILES=50000         sessions, requests under way in each, files of each
#   ROUNDS=3                             each round's rates are predicted from its own costs; of what comes of that the median counts
#   COSTS=FILE COSTS_2=FILE              instead of measuring them: of one rank, and of two
#   OUT=FILE                             the cost files that were measured go there, and to FILE.2
#   CPU=0 LOAD_CPU=1 DISK=DIR RUN=""     as costs.sh; two ranks have both CPUs, and share them with what loads them
set -eu
cd "$(dirname "$0")/../.."
. scripts/env.sh
HOSTS=${HOSTS:-6} TASKS=${TASKS:-48} FILES=${FILES:-50000} ROUNDS=${ROUNDS:-3} CPU=${CPU:-0} LOAD_CPU=${LOAD_CPU:-1}
DISK=${DISK:-$CACHE/figures} COSTS=${COSTS:-} COSTS_2=${COSTS_2:-$COSTS} OUT=${OUT:-} RUN=${RUN:-}
cargo build --release -q -p server --example scale_costs
cargo build --release -q -p sim
mkdir -p "$DISK"
work=$(mktemp -d "$DISK/scale.XXXXXX")
trap 'rm -rf "$work"' EXIT
measure="$CARGO_TARGET_DIR/release/examples/scale_costs"
for round in $(seq "$ROUNDS"); do
    if [ -z "$COSTS" ]; then
        $RUN taskset -c "$LOAD_CPU" "$measure" costs "$work" "$CPU" 1 >"$work/costs.1.$round"
        $RUN taskset -c "$CPU,$LOAD_CPU" "$measure" costs "$work" "$CPU,$LOAD_CPU" 1 2 >"$work/costs.2.$round"
    fi
    $RUN taskset -c "$LOAD_CPU" "$measure" rates "$work" "$CPU" 1 "$HOSTS" "$TASKS" "$FILES" | tee "$work/measured.1.$round"
    $RUN taskset -c "$CPU,$LOAD_CPU" "$measure" rates "$work" "$CPU,$LOAD_CPU" 2 "$HOSTS" "$TASKS" "$FILES" | tee "$work/measured.2.$round"
done
if [ -z "$COSTS" ]; then
    for ranks in 1 2; do
        bench/scale/medians.sh "$work/costs.$ranks".[0-9]* >"$work/costs.$ranks"
        printf '\nranks: %s\n' "$ranks"
        cat "$work/costs.$ranks"
    done
    [ -z "$OUT" ] || { cp "$work/costs.1" "$OUT"; cp "$work/costs.2" "$OUT.2"; }
fi

# beside NAME: what a comment of the round's cost file says.
beside() {
    awk -v name="$1" '$1 == "#" && $2 == name { print $3 }' "$costs"
}
# predict CPUS WORKLOAD [OPTION...]: of the round, for so many ranks; phase, operations per second, and for each second of CPU
predict() {
    local cpus=$1 workload=$2
    shift 2
    "$CARGO_TARGET_DIR/release/sim" scale --costs "$costs" --ranks "$ranks" --placement hash --workload "$workload" --hosts "$HOSTS" \
        --tasks $((HOSTS * TASKS / ranks)) --operations $((HOSTS * FILES)) --seconds 60 --network-us 10 --journal-mib 16 \
        --journal-us "$(beside sync-ns | awk '{ print $1 / 1e3 }')" --client-cpus "$cpus" --client-batch-ns "$(beside client-batch-ns)" \
        --client-message-ns "$(beside client-message-ns)" "$@" 2>/dev/null | awk '$1 != "#" && $1 != "phase" { print $1, $3, $6 }'
}
small="--cache-mib 4 --store-us 4 --dirs $((HOSTS * FILES / 200)) --files $((HOSTS * FILES))"
for ranks in 1 2; do
    cpus=$([ "$ranks" = 1 ] && echo one || echo ranks)
    for round in $(seq "$ROUNDS"); do
        costs=$work/costs.$ranks.$round
        [ -z "$COSTS" ] || { costs=$COSTS; [ "$ranks" = 1 ] || costs=$COSTS_2; }
        { predict "$cpus" mdtest; predict "$cpus" random-read $small; predict "$cpus" mixed $small; } >"$work/predicted.$ranks.$round"
        awk 'NR == FNR { ops[$1] = $3; cpu[$1] = $4; next } $1 in ops { print $1, ops[$1], $2, cpu[$1], $3 }' \
            "$work/measured.$ranks.$round" "$work/predicted.$ranks.$round"
    done >"$work/pairs.$ranks"
    printf '\n%-8s %5s %9s %9s %5s %10s %9s %5s %15s   (medians of %s)\n' phase ranks ops/s predicted off 'ops/CPU s' predicted off 'least to most' "$ROUNDS"
    awk -v ranks="$ranks" '
        # Sorts one column of a phase; the middle one counts.
        function middle(phase, column,    i, j, t) {
            for (i = 1; i <= rounds[phase]; i++) sorted[i] = values[phase, column, i]
            for (i = 2; i <= rounds[phase]; i++) for (j = i; j > 1 && sorted[j - 1] > sorted[j]; j--) { t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t }
            return sorted[int((rounds[phase] + 1) / 2)]
        }
        {
            if (!($1 in rounds)) order[++phases] = $1
            n = ++rounds[$1]
            for (column = 2; column <= 5; column++) values[$1, column, n] = $column
            values[$1, 6, n] = ($3 / $2 - 1) * 100
            values[$1, 7, n] = ($5 / $4 - 1) * 100
        }
        END {
            for (at = 1; at <= phases; at++) {
                phase = order[at]
                ops = middle(phase, 2); ops_p = middle(phase, 3); ops_off = middle(phase, 6)
                cpu = middle(phase, 4); cpu_p = middle(phase, 5); cpu_off = middle(phase, 7)
                printf "%-8s %5d %9d %9d %+4.0f%% %10d %9d %+4.0f%% %+6.0f%% to %+3.0f%%\n", \
                    phase, ranks, ops, ops_p, ops_off, cpu, cpu_p, cpu_off, sorted[1], sorted[rounds[phase]]
            }
        }' "$work/pairs.$ranks"
done
