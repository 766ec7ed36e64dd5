#!/usr/bin/env bash
# Attributes of a directory that two ranks serve, against those of a directory that one serves: GETATTR by reference over a unix socket by a client that keeps
# nothing, one call at a time; nobody else is there, or a client makes and removes names there meanwhile. Then stat(2) on a mount, where nobody else is. By turns.
#
#   NAMES=100000    in each directory
#   FILES=200000    calls of a measurement
#   DEPTH=8         calls that the writer has under way
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
NAMES=${NAMES:-100000} FILES=${FILES:-200000} DEPTH=${DEPTH:-8}

begin "hashed: pando bench calls --tests getdir --depth 1 --files $FILES; directories of $NAMES names, at ranks 0 and 1 against at rank 0; idle, and beside --tests create,unlink --depth $DEPTH; stat on a mount" python3
serve_ranks 2 2
parts() { "$PANDO" --format json dirfrag ls "$1" | grep -o '"rank": *[0-9]*' | sort -u | wc -l; }
has() { [ "$(parts "$WORK/mnt/$1")" = "$2" ]; }
mkdir -p "$WORK/mnt"
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt"
mkdir "$WORK/mnt/one.0.0" "$WORK/mnt/two.0.0"
"$PANDO" dirfrag split "$WORK/mnt/two.0.0" 1 >/dev/null
until_true has two.0.0 2
has one.0.0 1 || die "the other directory is at several ranks, too"
"$PANDO" -q umount "$WORK/mnt"
# calls ARGS...: a process with one session; what it makes in PREFIX.0.0 has other names than what it makes in PREFIX with --shared.
calls() { "$PANDO" bench calls "unix:$WORK/data/pando.sock" "$@"; }
for dir in one two; do calls --prefix $dir --depth 32 --files "$NAMES" --tests create >/dev/null; done
writes() {
    while [ ! -e "$WORK/written" ]; do
        calls --prefix "$1.0.0" --shared --depth "$DEPTH" --files 5000 --tests create,unlink >"$WORK/writer" || return 1
    done
}
# reads KEY DIR ARGS...
reads() {
    local key=$1 dir=$2
    shift 2
    calls --prefix "$dir" --files "$FILES" --tests getdir "$@" >"$WORK/out"
    note "rate.$key" "$(phase getdir 3 <"$WORK/out")"
    note "p50.$key" "$(phase getdir 4 <"$WORK/out")"
    note "p99.$key" "$(phase getdir 5 <"$WORK/out")"
    echo "round $round, $key: $(tail -n 1 "$WORK/note.rate.$key")/s, p50 $(tail -n 1 "$WORK/note.p50.$key") us, p99 $(tail -n 1 "$WORK/note.p99.$key") us"
}

# What was granted and taken back by turns is granted again only after some time, at most a minute: until then nothing is idle.
sleep 61
for ((round = 1; round <= ROUNDS; round++)); do
    for dir in $(sides "$round" one two); do reads $dir.idle $dir; done
done
for ((round = 1; round <= ROUNDS; round++)); do
    for dir in $(sides "$round" one two); do
        rm -f "$WORK/written"
        writes $dir &
        writer=$!
        reads $dir.written $dir
        touch "$WORK/written"
        wait "$writer" || die "the writer failed"
        note "writer.$dir" "$(phase create 3 <"$WORK/writer")"
        echo "round $round, writer in $dir: $(tail -n 1 "$WORK/note.writer.$dir") creates/s"
    done
done

# stats KEY DIR: on the mount, one after the other.
stats() {
    read -r p50 p99 < <(python3 - "$WORK/mnt/$2.0.0" "$FILES" <<'EOF'
import os, sys, time
path, took = sys.argv[1], []
for _ in range(int(sys.argv[2])):
    begin = time.perf_counter_ns()
    os.stat(path)
    took.append(time.perf_counter_ns() - begin)
took.sort()
print(took[len(took) // 2] / 1000, took[len(took) * 99 // 100] / 1000)
EOF
    )
    note "p50.$1" "$p50"
    note "p99.$1" "$p99"
    echo "round $round, $1: p50 $p50 us, p99 $p99 us"
}
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt"
# As above.
sleep 61
for ((round = 1; round <= ROUNDS; round++)); do
    for dir in $(sides "$round" one two); do stats $dir.mount $dir; done
done

echo
for dir in one two; do echo "at $dir, on a mount: p50 $(of p50.$dir.mount %.2f) us, p99 $(of p99.$dir.mount %.2f) us"; done
for how in idle written; do
    for dir in one two; do echo "at $dir, $how: $(of rate.$dir.$how)/s, p50 $(of p50.$dir.$how) us, p99 $(of p99.$dir.$how) us"; done
done
for dir in one two; do echo "the writer at $dir: $(of writer.$dir) creates/s"; done
echo "two to one: idle p50 $(ratio p50.two.idle p50.one.idle), p99 $(ratio p99.two.idle p99.one.idle); being written p50 $(ratio p50.two.written p50.one.written), p99 $(ratio p99.two.written p99.one.written)"
echo "being written at two to idle at one: p50 $(ratio p50.two.written p50.one.idle)"
echo "on a mount: p50 $(ratio p50.two.mount p50.one.mount), p99 $(ratio p99.two.mount p99.one.mount)"
echo "wanted: idle 1.1, being written 3"
