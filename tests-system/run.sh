#!/usr/bin/env bash
# Runs every system test (or those named), one after the other; ends with "system: N passed, N failed".
#
#   tests-system/run.sh [smoke kill ...]
set -u
cd "$(dirname "$0")" || exit 1
passed=0 failed=0 failures=()
tests=("$@")
if [ ${#tests[@]} -eq 0 ]; then
    for file in t_*.sh; do tests+=("$(basename "${file#t_}" .sh)"); done
fi
for test in "${tests[@]}"; do
    echo "== $test"
    log=$(mktemp)
    start=$SECONDS
    timeout --signal=TERM --kill-after=30 "${PANDO_TEST_SECONDS:-1200}" bash "t_$test.sh" 2>&1 | tee "$log"
    read -r p f < <(sed -n 's/^result: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
    if [ -z "${f:-}" ]; then
        echo "FAIL $test: ended without a result" | tee -a "$log"
        p=$(grep -c '^PASS ' "$log") f=1
    fi
    # Repeated at the end: the start of a long log is what gets lost.
    while IFS= read -r line; do failures+=("$test: ${line#FAIL }"); done < <(grep '^FAIL ' "$log")
    passed=$((passed + p)) failed=$((failed + f))
    echo "-- $test: $((SECONDS - start)) s"
    rm -f "$log"
    unset p f
done
for line in "${failures[@]}"; do echo "failed in $line"; done
echo "system: $passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
