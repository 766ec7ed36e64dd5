#!/usr/bin/env bash
# One directory of FILES names that is placed by hash and comes to be served by all ranks by itself: created, looked up, listed through a mount and counted, unlinked,
# and removed. It fails if a name is missing, listed twice or left.
#
#   FILES=10000000 RANKS=2 PROCS=4 DEPTH=32
ROUNDS=${ROUNDS:-1}
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
FILES=${FILES:-10000000} RANKS=${RANKS:-2} PROCS=${PROCS:-4} DEPTH=${DEPTH:-32}
TESTS="create lookup unlink"

begin "large: pando bench calls --shared --procs $PROCS --depth $DEPTH --files $((FILES / PROCS)) in one directory placed by hash; $RANKS ranks"
serve_ranks "$RANKS" "$RANKS"
mkdir "$WORK/mnt"
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt"
ask fs set pandofs placement hash >/dev/null

# calls TESTS
calls() {
    "$PANDO" bench calls "unix:$WORK/data/pando.sock" --procs "$PROCS" --depth "$DEPTH" --files $((FILES / PROCS)) --prefix "large$round" --shared \
        --watch-pid "$SERVER" --tests "$1" >"$WORK/out"
    cat "$WORK/out"
    for test in ${1//,/ }; do
        note "$test" "$(phase "$test" 3 <"$WORK/out")"
        note "p99.$test" "$(phase "$test" 5 <"$WORK/out")"
        note "server.$test" "$(phase "$test" 6 <"$WORK/out")"
    done
}

for ((round = 1; round <= ROUNDS; round++)); do
    dir=$WORK/mnt/large$round
    mkdir "$dir"
    echo "round $round:"
    calls create,lookup
    "$PANDO" dirfrag ls "$dir"
    from=$(now)
    ls -f "$dir" | grep -v '^\.\.\?$' >"$WORK/names"
    note list "$(awk -v from="$from" -v to="$(now)" -v files="$FILES" 'BEGIN { print files / (to - from) }')"
    [ "$(wc -l <"$WORK/names")" = "$FILES" ] || die "listed: $(wc -l <"$WORK/names") names"
    [ "$(sort -u -S 1G "$WORK/names" | wc -l)" = "$FILES" ] || die "names are listed twice"
    [ "$(stat -c %h "$dir")" = 2 ] || die "links of it: $(stat -c %h "$dir")"
    echo "memory of the server: $(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$SERVER/status") MiB at its peak"
    calls unlink
    [ -z "$(ls -A "$dir")" ] || die "names are left"
    rmdir "$dir"
done

echo
echo "operations/s, median (least to most)"
for test in $TESTS; do echo "$test: $(of "$test")/s, p99 $(of "p99.$test") us, CPU s of the server $(of "server.$test" %.2f)"; done
echo "list, through a mount: $(of list) names/s"
echo "durability: on disk when answered"
