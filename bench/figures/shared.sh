#!/usr/bin/env bash
# PROCS processes through the Rust API, DEPTH calls under way in each: all in one directory that two ranks serve, against a directory for each, half of them at
# each rank. The same server, by turns.
#
#   PROCS=4 DEPTH=32 FILES=200000    per process
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
PROCS=${PROCS:-4} DEPTH=${DEPTH:-32} FILES=${FILES:-200000}
TESTS="create lookup getattr unlink"

begin "shared: pando bench calls --procs $PROCS --depth $DEPTH --files $FILES, --shared in a directory spread over ranks 0 and 1 against private ones, half at each; 2 ranks" setfattr python3
serve_ranks 2 2
# parts PATH: ranks that have some.
parts() { "$PANDO" --format json dirfrag ls "$1" | grep -o '"rank": *[0-9]*' | sort -u | wc -l; }
both() { [ "$(parts "$1")" = 2 ]; }
pinned root0 0
for ((round = 1; round <= ROUNDS; round++)); do
    mkdir "$WORK/mnt/shared$round"
    "$PANDO" dirfrag split "$WORK/mnt/shared$round" 1 >/dev/null
    until_true both "$WORK/mnt/shared$round"
    for ((proc = 0; proc < PROCS; proc++)); do
        mkdir "$WORK/mnt/private$round.$proc.0"
        setfattr -n ceph.dir.pin -v $((proc % 2)) "$WORK/mnt/private$round.$proc.0"
    done
done
"$PANDO" -q umount "$WORK/mnt"

for ((round = 1; round <= ROUNDS; round++)); do
    for side in $(sides "$round" private shared); do
        BEFORE=$(requests 0 1)
        words=()
        [ $side = private ] || words=(--shared)
        "$PANDO" bench calls "unix:$WORK/data/pando.sock" --procs "$PROCS" --depth "$DEPTH" --files "$FILES" --prefix "$side$round" "${words[@]}" \
            --watch-pid "$SERVER" --tests "${TESTS// /,}" >"$WORK/out"
        echo "round $round, $side:"
        cat "$WORK/out"
        echo "requests of ranks 0 and 1: $(served 0 1)"
        for test in $TESTS; do
            note "$side.$test" "$(phase $test 3 <"$WORK/out")"
            note "p99.$side.$test" "$(phase $test 5 <"$WORK/out")"
            note "server.$side.$test" "$(phase $test 6 <"$WORK/out")"
        done
    done
done

echo
echo "operations/s, median (least to most); CPU s of the server"
for test in $TESTS; do
    for side in private shared; do
        echo "$test, $side: $(of $side.$test)/s, p99 $(of p99.$side.$test) us, CPU s $(of server.$side.$test %.2f)"
    done
    echo "    shared to private: $(ratio shared.$test private.$test)"
done
echo "durability: on disk when answered, both; wanted: 0.7"
