#!/usr/bin/env bash
# Attributes of a directory that two ranks serve, against those of a directory that one serves, one call at a time: GETATTR by reference over a unix socket by a client that
# keeps nothing, and stat(2) on a mount. Nobody else is there, or WRITERS clients of one process make, stat and remove files in it all the time. By turns.
#
#   NAMES=100000    in each directory
#   FILES=200000    calls of GETATTR in a measurement
#   STATS=50000     calls of stat(2)
#   WRITERS=8       one call at a time each
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
NAMES=${NAMES:-100000} FILES=${FILES:-200000} STATS=${STATS:-50000} WRITERS=${WRITERS:-8}

begin "hashed: pando bench calls --tests getdir --depth 1 --files $FILES, and $STATS calls of stat on a mount; directories of $NAMES names, at ranks 0 and 1 against at rank 0; idle, and beside pando bench steady --clients $WRITERS" python3
serve_ranks 2 2
parts() { "$PANDO" --format json dirfrag ls "$1" | grep -o '"rank": *[0-9]*' | sort -u | wc -l; }
has() { [ "$(parts "$WORK/mnt/$1/d0")" = "$2" ]; }
mkdir -p "$WORK/mnt"
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt"
mkdir -p "$WORK/mnt/one/d0" "$WORK/mnt/two/d0"
"$PANDO" dirfrag split "$WORK/mnt/two/d0" 1 >/dev/null
until_true has two 2
has one 1 || die "the other directory is at several ranks, too"
"$PANDO" -q umount "$WORK/mnt"
# calls DIR ARGS...
calls() { "$PANDO" bench calls "unix:$WORK/data/pando.sock" --prefix "$1/d0" --shared "${@:2}"; }
for dir in one two; do calls $dir --depth 32 --files "$NAMES" --tests create >/dev/null; done

# noted KEY P50 P99 CPU: of a measurement; CPU seconds are the server's.
noted() {
    note "p50.$1" "$2"
    note "p99.$1" "$3"
    note "server.$1" "$4"
    echo "round $round, $1: p50 $2 us, p99 $3 us, CPU s of the server $4, requests of ranks 0 and 1: $(served 0 1)"
}
# getattr KEY DIR
getattr() {
    BEFORE=$(requests 0 1)
    calls "$2" --files "$FILES" --tests getdir --watch-pid "$SERVER" >"$WORK/out"
    noted "getattr.$1" "$(phase getdir 4 <"$WORK/out")" "$(phase getdir 5 <"$WORK/out")" "$(phase getdir 6 <"$WORK/out")"
}
# stats KEY DIR
stats() {
    local p50 p99 used
    BEFORE=$(requests 0 1) used=$(cpu "$SERVER")
    read -r p50 p99 < <(python3 - "$WORK/mnt/$2/d0" "$STATS" <<'PYTHON'
import os, sys, time
path, took = sys.argv[1], []
for _ in range(int(sys.argv[2])):
    begin = time.perf_counter_ns()
    os.stat(path)
    took.append(time.perf_counter_ns() - begin)
took.sort()
print(took[len(took) // 2] / 1000, took[len(took) * 99 // 100] / 1000)
PYTHON
    )
    noted "stat.$1" "$p50" "$p99" "$(minus "$(cpu "$SERVER")" "$used")"
}
# rounds CALL: all of one kind. What was granted and taken back by turns is granted again only after some time, at most a minute: until then nothing is idle.
rounds() {
    local dir
    sleep 61
    for ((round = 1; round <= ROUNDS; round++)); do
        for dir in $(sides "$round" one two); do "$1" $dir.idle $dir; done
    done
    for ((round = 1; round <= ROUNDS; round++)); do
        for dir in $(sides "$round" one two); do
            load --groups $dir --dirs 1 --clients "$WRITERS"
            "$1" $dir.written $dir
            end=$(now)
            unload >/dev/null
            span "$1.writer.$dir" "$LOADED" "$end"
        done
    done
}
rounds getattr
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt"
rounds stats

echo
for call in getattr stat; do
    for how in idle written; do
        for dir in one two; do echo "$call at $dir, $how: p50 $(of p50.$call.$dir.$how %.2f) us, p99 $(of p99.$call.$dir.$how %.2f) us; CPU s of the server $(of server.$call.$dir.$how %.2f)"; done
        echo "    two to one: p50 $(ratio p50.$call.two.$how p50.$call.one.$how), p99 $(ratio p99.$call.two.$how p99.$call.one.$how)"
    done
    echo "    written at two to idle at one: p50 $(ratio p50.$call.two.written p50.$call.one.idle)"
done
for call in getattr stats; do echo "the writers beside $call: at one $(of rate.$call.writer.one) calls/s, at two $(of rate.$call.writer.two) calls/s, errors $(of errors.$call.writer.one) and $(of errors.$call.writer.two)"; done
echo "beside writers: $(costs)"
echo "wanted: idle 1.1, being written 3"
