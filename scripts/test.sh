#!/usr/bin/env bash
# Every test of PandoFS, as CI runs them. Runs all stages even when one fails, prints a table of them,
# and ends with the plain line "N passed, N failed". Exit 0 only if nothing failed.
#
#   scripts/test.sh [STAGE...]        stages: see the list at the end; default all
#
# A stage without tests of its own (formatting, lints) counts as one. Logs: $CARGO_TARGET_DIR/test-logs.
set -u
. "$(dirname "$0")/env.sh"
cd "$ROOT" || exit 1

LOGS=$CARGO_TARGET_DIR/test-logs
mkdir -p "$LOGS"
wanted=("$@")
passed_total=0 failed_total=0 rows=() failures=()

# Sums the "test result:" lines of cargo test and the last line of tests-system/run.sh.
count() {
    awk '
        /^test result: / { passed += $4; failed += $6; seen = 1 }
        /^system: [0-9]+ passed, [0-9]+ failed$/ { passed += $2; failed += $4; seen = 1 }
        END { if (seen) print passed + 0, failed + 0 }
    ' "$1"
}

# stage NAME COMMAND...
stage() {
    local name=$1 start end status passed=0 failed=0 log
    shift
    if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
    log=$LOGS/$name.log
    echo "== $name: $*"
    start=$SECONDS
    "$@" >"$log" 2>&1
    status=$?
    end=$((SECONDS - start))
    read -r passed failed <<<"$(count "$log")"
    if [ -z "${passed:-}" ]; then
        if [ $status = 0 ]; then passed=1 failed=0; else passed=0 failed=1; fi
    elif [ $status != 0 ] && [ "$failed" = 0 ]; then
        # It broke outside of any test: a build error, a harness that died.
        failed=1
    fi
    passed_total=$((passed_total + passed)) failed_total=$((failed_total + failed))
    local verdict=ok
    if [ $status != 0 ] || [ "$failed" != 0 ]; then
        verdict=FAILED
        echo "-- end of $log"
        tail -n 60 "$log"
        while IFS= read -r line; do failures+=("$name: $line"); done < <(grep -aE '^(failed in|test .*FAILED|error)' "$log" | head -n 10)
    fi
    rows+=("$(printf '%-12s %-7s %4d:%02d %8d %8d' "$name" $verdict $((end / 60)) $((end % 60)) "$passed" "$failed")")
}

# With the seeded defects compiled in, and off but in the tests that show that they are caught.
units() {
    UNITS_RAN=1
    cargo test --locked --workspace --exclude tidy --features mds/mutants,client/mutants,store/mutants --no-fail-fast
}

# The defects seeded in the simulated crates are all found: by the simulator, the others by tests of their crate. Each test that the
# simulator's list names has run and passed, however it is called: among the units, or here if those were not asked for.
mutants() {
    local caught=$LOGS/units.log needed status=0 crate test missing=0
    local simulator=(cargo run --release --locked -p sim --features mutants --)
    "${simulator[@]}" mutants --seeds 500 && needed=$("${simulator[@]}" elsewhere) && [ -n "$needed" ] || return 1
    if [ -z "${UNITS_RAN:-}" ]; then
        caught=$LOGS/caught.log
        cargo test --locked -p mds -p client -p store --features mds/mutants,client/mutants,store/mutants -- \
            caught does_not_conform >"$caught" 2>&1
        status=$?
        cat "$caught"
    fi
    while read -r crate test; do
        grep -qxF "test $test ... ok" "$caught" || { echo "error: $crate: $test did not run or failed" && missing=1; }
    done <<<"$needed"
    [ $status = 0 ] && [ $missing = 0 ]
}

# The worlds of the simulator, which is built once for this and for `mutants`: a defect that is off changes no history.
sweep() {
    local seeds=${PANDOFS_SEEDS:-1000} simulator=(cargo run --release --locked -p sim --features mutants --)
    "${simulator[@]}" sweep --seeds "$seeds" &&
        "${simulator[@]}" sweep --cluster --seeds "$seeds" &&
        "${simulator[@]}" sweep --ranks --once --seeds "$seeds" &&
        "${simulator[@]}" sweep --ranks --eager --once --seeds "$seeds"
}

system() {
    cargo build --release --locked -p cli -p lossydisk && tests-system/run.sh
}

if [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " =~ " system " ]]; then
    scripts/install-prerequisites.sh --tests || echo "going on; what needs the missing parts will fail"
fi

# What later stages run is built beside what the first ones build: they wait for different locks, and a large crate's front end leaves
# a CPU idle. What fails here fails again in its stage, which says so.
ahead() {
    cargo build --release --locked -p sim --features mutants
    cargo build --release --locked -p fuzz
    cargo build --release --locked -p cli -p lossydisk
}
if [ ${#wanted[@]} -eq 0 ]; then
    ahead >"$LOGS/ahead.log" 2>&1 &
fi

stage fmt cargo fmt --all --check
stage clippy cargo clippy --workspace --all-targets --locked -- -D warnings
stage tidy cargo test --locked -p tidy
stage units units
stage sweep sweep
stage mutants mutants
# Hostile bytes for everything that reads bytes, from the kept corpus on, for a fixed time.
stage fuzz cargo run --release --locked -p fuzz -- run --seconds "${PANDOFS_FUZZ_SECONDS:-120}"
stage system system

echo
printf '%-12s %-7s %7s %8s %8s\n' stage result time passed failed
printf '%s\n' "${rows[@]}"
echo
for line in "${failures[@]}"; do echo "$line"; done
echo "$passed_total passed, $failed_total failed"
[ $failed_total = 0 ] && [ $passed_total -gt 0 ]
