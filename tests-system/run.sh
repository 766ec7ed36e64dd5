#!/usr/bin/env bash
# Runs every system test (or those named), two at a time; ends with "system: N passed, N failed". Each has a folder and processes of its
# own, and much of its time it waits. What one printed is shown when it is over.
#
#   [PANDO_TEST_JOBS=1] tests-system/run.sh [smoke kill ...]
set -u
cd "$(dirname "$0")" || exit 1
passed=0 failed=0 failures=()
tests=("$@")
if [ ${#tests[@]} -eq 0 ]; then
    # The longest first, so that none is left alone at the end.
    tests=(cuts dirfrag ranks)
    for file in t_*.sh; do
        test=$(basename "${file#t_}" .sh)
        [[ " ${tests[*]} " == *" $test "* ]] || tests+=("$test")
    done
fi
logs=$(mktemp -d) || exit 1
declare -A running=() since=()
trap 'rm -rf "$logs"' EXIT
# Each test ends what it has begun.
trap 'kill "${!running[@]}" 2>/dev/null; wait; exit 1' INT TERM

# over TEST: says what it printed, and counts.
over() {
    local test=$1 log=$logs/$1 p f line
    echo "== $test"
    read -r p f < <(sed -n 's/^result: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
    if [ -z "${f:-}" ]; then
        # On a line of its own: what was cut off may have ended within one.
        printf '\nFAIL ended without a result\n' >>"$log"
        p=$(grep -ac '^PASS ' "$log") f=1
    fi
    cat "$log"
    # Repeated at the end: the start of a long log is what gets lost.
    while IFS= read -r line; do failures+=("$test: ${line#FAIL }"); done < <(grep -a '^FAIL ' "$log")
    passed=$((passed + p)) failed=$((failed + f))
    echo "-- $test: $((SECONDS - since[$test])) s"
}

wait_for_one() {
    local pid=
    wait -n -p pid "${!running[@]}"
    if [ -z "$pid" ]; then echo "no test to wait for: ${running[*]}" && exit 1; fi
    over "${running[$pid]}"
    unset "running[$pid]"
}

for test in "${tests[@]}"; do
    while [ ${#running[@]} -ge "${PANDO_TEST_JOBS:-2}" ]; do wait_for_one; done
    since[$test]=$SECONDS
    timeout --signal=TERM --kill-after=30 "${PANDO_TEST_SECONDS:-1200}" bash "t_$test.sh" >"$logs/$test" 2>&1 &
    running[$!]=$test
done
while [ ${#running[@]} -gt 0 ]; do wait_for_one; done
for line in "${failures[@]}"; do echo "failed in $line"; done
echo "system: $passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
