#!/usr/bin/env bash
# The Rust API over a unix socket: PROCS processes with a session each, DEPTH calls under way in each; and how long one call takes of one
# process that waits for each. `many` and `alone` are answered when a change is on the disk, `nowsync` as mounts by root are: before,
# and if a crash takes it back the client makes it again.
#
#   PROCS=2 DEPTH=32 FILES=1000000    per process    wanted: create 150000/s, lookup 300000/s in all
#   ALONE=50000                       files of the process that waits for each call
. "$(dirname "$0")/lib.sh"
PROCS=${PROCS:-2} DEPTH=${DEPTH:-32} FILES=${FILES:-1000000} ALONE=${ALONE:-50000}
TESTS="create lookup getattr unlink"

begin "calls: pando bench calls unix:SOCK --procs $PROCS --depth $DEPTH --files $FILES, the same with --nowsync, and --procs 1 --depth 1 --files $ALONE"
for ((round = 1; round <= ROUNDS; round++)); do
    rm -rf "$WORK/data"
    serve "$WORK/data"
    for side in $(sides $round many nowsync alone); do
        case $side in
        many) words=(--procs "$PROCS" --depth "$DEPTH" --files "$FILES") ;;
        nowsync) words=(--procs "$PROCS" --depth "$DEPTH" --files "$FILES" --nowsync) ;;
        alone) words=(--procs 1 --depth 1 --files "$ALONE") ;;
        esac
        "$PANDO" bench calls "unix:$WORK/data/pando.sock" "${words[@]}" --prefix $side --watch-pid "$SERVER" --tests "${TESTS// /,}" >"$WORK/out"
        echo "round $round, $side:"
        cat "$WORK/out"
        for test in $TESTS; do
            note "$side.$test" "$(phase $test 3 <"$WORK/out")"
            note "p50.$side.$test" "$(phase $test 4 <"$WORK/out")"
            note "p99.$side.$test" "$(phase $test 5 <"$WORK/out")"
            note "server.$side.$test" "$(phase $test 6 <"$WORK/out")"
            note "clients.$side.$test" "$(sed -n "s/^cpu s of the clients: .*$test \([0-9.]*\).*/\1/p" "$WORK/out")"
        done
    done
    kill "$SERVER"
    wait_end "$SERVER" 120 || die "the server does not end"
done

echo
echo "median (least to most); CPU s of the server and of the clients"
for side in many nowsync alone; do
    for test in $TESTS; do
        echo "$side, $test: $(of $side.$test)/s, p50 $(of p50.$side.$test) us, p99 $(of p99.$side.$test) us, CPU s $(of server.$side.$test %.2f) and $(of clients.$side.$test %.2f)"
    done
done
echo "durability: a change is answered when it is on disk; with nowsync when the client has it, which makes it again after a crash; wanted, $PROCS processes in all: create 150000/s, lookup 300000/s"
