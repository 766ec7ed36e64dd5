#!/usr/bin/env bash
# How long a request waits for the rank while one client lists a directory of a million names without end: the latencies of
# another client that creates, looks up and unlinks there, alone and beside the listing. The run itself checks that every
# listing has each name once. A change is answered when it is on disk; a lookup waits for nothing but the rank.
#
#   ENTRIES=1000000 SECONDS_EACH=60    wanted: p99 at most 5 ms
#   CHECKPOINT_EACH=15                 seconds from checkpoint to checkpoint; the changes alone would fill no journal
. "$(dirname "$0")/lib.sh"
ENTRIES=${ENTRIES:-1000000} SECONDS_EACH=${SECONDS_EACH:-60} CHECKPOINT_EACH=${CHECKPOINT_EACH:-15}

begin "listing: pando bench list unix:SOCK --entries $ENTRIES --seconds $SECONDS_EACH; a checkpoint each $CHECKPOINT_EACH s"
serve "$WORK/data"

# checkpoints: until the file `stop` is there.
checkpoints() {
    local second=0
    until [ -e "$WORK/stop" ]; do
        sleep 1
        second=$((second + 1))
        [ $((second % CHECKPOINT_EACH)) != 0 ] || "$PANDO" -q compact "$WORK/data" >/dev/null
    done
}

for ((round = 1; round <= ROUNDS; round++)); do
    for side in $(sides $round alone beside); do
        listers=1
        [ "$side" = beside ] || listers=0
        echo "round $round, $side:"
        rm -f "$WORK/stop"
        checkpoints & checkpoints=$!
        "$PANDO" bench list "unix:$WORK/data/pando.sock" --entries "$ENTRIES" --seconds "$SECONDS_EACH" --listers $listers \
            --watch-pid "$SERVER" >"$WORK/out" || { cat "$WORK/out"; die "the listing failed or was wrong"; }
        touch "$WORK/stop"
        wait $checkpoints
        cat "$WORK/out"
        for name in create lookup unlink; do note "$side.$name" "$(phase $name 5 <"$WORK/out")"; done
        note "$side.rate" "$(sed -n 's/.* s: \([0-9]*\) names.*/\1/p' "$WORK/out")"
        note "$side.cpu" "$(sed -n 's/.*; cpu \([0-9.]*\) s.*/\1/p' "$WORK/out")"
        note "$side.checkpoints" "$(sed -n 's/.*, \([0-9]*\) checkpoints/\1/p' "$WORK/out")"
    done
done
kill "$SERVER"
wait_end "$SERVER" 120 || die "the server does not end"

echo
for side in alone beside; do
    echo "$side: p99 in us: lookup $(of $side.lookup), create $(of $side.create), unlink $(of $side.unlink); $(of $side.checkpoints) checkpoints, CPU s of the server $(of $side.cpu %.1f)"
done
echo "listing: $(of beside.rate) names/s, each listing whole"
echo "durability: a change is answered when it is on disk; wanted: p99 at most 5000 us beside the listing"
