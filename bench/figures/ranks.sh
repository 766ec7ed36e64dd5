#!/usr/bin/env bash
# Two ranks on two CPUs against one rank on one: create, getattr and unlink in private directories, load generator included, as many threads for each rank.
# The same names again and again, CYCLES times: so memory and store stay as large as they are, and each cycle has checkpoints.
# Answers are those of an embedded mount: applied and journalled, on disk a few milliseconds later.
#
#   FILES=1000000 THREADS=2 EACH=10000    per thread; threads for each rank; names per directory
#   CYCLES=14                             create, getattr, unlink: a minute of creates and more
#   JOURNAL=256M CACHE_LIMIT=4G           for each rank
#   AFFINITY=true                         mds_rank_affinity: each rank, with its share of the load, on a CPU of its own
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-1000000} THREADS=${THREADS:-2} EACH=${EACH:-10000} CYCLES=${CYCLES:-14} JOURNAL=${JOURNAL:-256M} CACHE_LIMIT=${CACHE_LIMIT:-4G} AFFINITY=${AFFINITY:-true}
TESTS="create getattr unlink"

begin "ranks: taskset -c 0,1 pando bench survey --ranks 2 --threads $((THREADS * 2)) against -c 0 --ranks 1 --threads $THREADS; --files $FILES, $EACH in each of --dirs, $CYCLES times; --depth 32; journal_size $JOURNAL, mds_cache_memory_limit $CACHE_LIMIT, mds_rank_affinity $AFFINITY" taskset
[ "$(nproc)" -ge 2 ] || die "two CPUs are needed"
printf 'journal_size = "%s"\nmds_cache_memory_limit = "%s"\nmds_rank_affinity = %s\n' "$JOURNAL" "$CACHE_LIMIT" "$AFFINITY" >"$WORK/pando.toml"

# one RANKS
one() {
    local cpus=0 threads=$((THREADS * $1)) dirs test tests
    [ "$1" = 1 ] || cpus=0,1
    dirs=$((FILES * threads / EACH))
    tests=$(yes "${TESTS// /,}" | head -n "$CYCLES" | paste -sd, -)
    rm -rf "$WORK/data"
    taskset -c $cpus "$PANDO" --conf "$WORK/pando.toml" bench survey "$WORK/data" --ranks "$1" --threads $threads --files "$FILES" \
        --dirs $((dirs > threads ? dirs : threads)) --depth 32 --tests "$tests" >"$WORK/out"
    cat "$WORK/out"
    for test in $TESTS; do
        # Of all cycles together: operations/s, CPU s, CPU us each, seconds.
        read -r rate cpu each seconds < <(awk -v test="$test" '
            $1 == test { ops += $2; seconds += $2 / $3; cpu += $6 }
            END { printf "%.0f %.2f %.3f %.1f\n", ops / seconds, cpu, cpu * 1e6 / ops, seconds }' "$WORK/out")
        note "$test.$1" "$rate"
        note "cpu.$test.$1" "$cpu"
        note "each.$test.$1" "$each"
        note "seconds.$test.$1" "$seconds"
        note "checkpoints.$test.$1" "$(awk -v test="$test" '/^checkpoints/ { for (i = 1; i < NF; i++) if ($i == test) n += $(i + 1) } END { print n + 0 }' "$WORK/out")"
    done
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    for ranks in $(sides "$round" 1 2); do one "$ranks"; done
done

echo
echo "operations/s, median (least to most); CPU us of all threads for each operation; checkpoints of all ranks"
for test in $TESTS; do
    for ranks in 1 2; do
        echo "$test, $ranks: $(of "$test.$ranks")/s, CPU s $(of "cpu.$test.$ranks" %.2f), CPU us each $(of "each.$test.$ranks" %.2f), $(of "seconds.$test.$ranks") s, $(of "checkpoints.$test.$ranks") checkpoints"
    done
    echo "    two to one: $(ratio "$test.2" "$test.1")"
done
echo "durability: applied and journalled, on disk a few milliseconds later; wanted: 1.8"
