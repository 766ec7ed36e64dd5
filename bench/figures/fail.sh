#!/usr/bin/env bash
# One rank of four is killed under load (`pando tell mds.2 crash`; a slot stands by): what the clients of the other ranks notice, and when it serves again.
#
#   CLIENTS=1 DIRS=100 BEFORE=15 AFTER=15      clients and directories of each rank; seconds
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
CLIENTS=${CLIENTS:-1} DIRS=${DIRS:-100} BEFORE=${BEFORE:-15} AFTER=${AFTER:-15} VICTIM=2

begin "fail: pando bench steady --groups r0,r1,r2,r3 --dirs $DIRS --clients $CLIENTS, each at its rank of four; pando tell mds.$VICTIM crash" setfattr
later() { local at; at=$(life $VICTIM) && [ -n "$at" ] && [ "$at" != "$1" ]; }

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    rm -rf "$WORK/data" "$WORK/mnt"
    serve_ranks 5 4
    for rank in 0 1 2 3; do pinned r$rank $rank; done
    "$PANDO" -q umount "$WORK/mnt"
    load $((BEFORE + AFTER + 10)) --groups r0,r1,r2,r3 --dirs "$DIRS" --clients "$CLIENTS"
    until_true grep -q ' ops ' "$WORK/load"
    # What is made first counts nowhere.
    sleep 2
    from=$(now)
    sleep "$BEFORE"
    before=$(life $VICTIM)
    killed=$(now)
    ask tell mds.$VICTIM crash
    until later "$before"; do sleep 0.02; done
    active=$(now)
    sleep "$AFTER"
    end=$(now)
    kill "$LOAD" && wait_end "$LOAD" 10
    cat "$WORK/load"
    # The seconds in which it was away, and the one in which it came.
    meanwhile=$(awk -v a="$killed" 'BEGIN { printf "%.3f", a + 3 }')
    note active "$(minus "$active" "$killed")"
    for rank in 0 1 2 3; do
        echo "r$rank before: $(words "$from" "$killed" r$rank)"
        echo "r$rank in the 3 s after: $(words "$killed" "$meanwhile" r$rank)"
        echo "r$rank until the end: $(words "$killed" "$end" r$rank)"
        note errors "$(part "$killed" "$end" r$rank | awk '{ print $6 }')"
        [ $rank != $VICTIM ] || { note blocked "$(part "$killed" "$end" r$rank | awk '{ print $5 / 1000 }')" && continue; }
        note rate.before "$(part "$from" "$killed" r$rank | awk '{ print $1 }')"
        note rate.after "$(part "$killed" "$meanwhile" r$rank | awk '{ print $1 }')"
        note p99.before "$(part "$from" "$killed" r$rank | awk '{ print $3 }')"
        note p99.after "$(part "$killed" "$meanwhile" r$rank | awk '{ print $3 }')"
    done
    kill "$SERVER" && wait_end "$SERVER" 60 || die "the server does not end"
done

echo
echo "active again after $(of active %.2f) s; its clients' longest call $(of blocked %.0f) ms; errors $(of errors)"
echo "the other ranks in the 3 s after: calls/s $(of rate.after) against $(of rate.before): $(ratio rate.after rate.before); p99 $(of p99.after) us against $(of p99.before) us: $(ratio p99.after p99.before)"
echo "wanted: active within 2 s, others 0.9 of their calls, p99 at most 2 times"
