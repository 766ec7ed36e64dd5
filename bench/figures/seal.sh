#!/usr/bin/env bash
# A directory of NAMES names goes from rank to rank and back (`ceph.dir.pin`) under load: what the calls in it take meanwhile. Its clients create, stat and unlink in it alone, so
# whoever is parked by the seal is among them; the longest call of a second in which it moved bounds what any of these waited.
#
#   NAMES=10000 CLIENTS=2 MOVES=10 EVERY=3      seconds between moves
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
NAMES=${NAMES:-10000} CLIENTS=${CLIENTS:-2} MOVES=${MOVES:-10} EVERY=${EVERY:-3}

begin "seal: pando bench steady --groups s --dirs 1 --clients $CLIENTS in a directory of $NAMES names; pinned to ranks 1 and 2 by turns, $MOVES times" setfattr
serve_ranks 3 3
pinned s 1
mkdir "$WORK/mnt/s/d0"
(cd "$WORK/mnt/s/d0" && seq -f 'name%08.0f' "$NAMES" | xargs touch)
for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    load $(((MOVES + 3) * EVERY + 30)) --groups s --dirs 1 --clients "$CLIENTS"
    until_true grep -q ' ops ' "$WORK/load"
    # What is made first counts nowhere.
    sleep 2
    from=$(now)
    sleep $((3 * EVERY))
    begun=$(now)
    for ((i = 1; i <= MOVES; i++)); do
        to=$((1 + i % 2))
        moved=$(now)
        setfattr -n ceph.dir.pin -v $to "$WORK/mnt/s"
        took=$(minus "$(now)" "$moved")
        sleep "$EVERY"
        end=$(now)
        echo "move $i to rank $to, $took s: $(words "$moved" "$end")"
        note highest "$(part "$moved" "$end" | awk '{ print $5 / 1000 }')"
        note errors "$(part "$moved" "$end" | awk '{ print $6 }')"
        note took "$took"
    done
    kill "$LOAD" && wait_end "$LOAD" 10
    cat "$WORK/load"
    echo "before: $(words "$from" "$begun")"
    note before "$(part "$from" "$begun" | awk '{ print $5 / 1000 }')"
    note p99.before "$(part "$from" "$begun" | awk '{ print $3 / 1000 }')"
done

echo
echo "longest call around a move: $(of highest %.1f) ms; without moves, in $((3 * EVERY)) s: $(of before %.1f) ms (p99 $(of p99.before %.2f) ms); a move took $(of took %.2f) s; errors $(of errors)"
echo "wanted: p99 of what was parked below 10 ms"
