#!/usr/bin/env bash
# One rank of four is killed under load (`pando tell mds.2 crash`; a slot stands by): when it serves again, and what the clients of the other ranks notice until
# then. The longest call of the killed rank's clients says when that was, from its begin to its answer: who asks the server takes CPU from those who are measured. What
# the others get is that of the second from the kill on, or of all the time until the rank serves again if that is longer; beside it, of that time alone, however
# short it is: all calls that are under way in it count. The load of the killed rank pauses meanwhile, and leaves its CPU to the others.
#
#   CLIENTS=1 DIRS=100 BEFORE=15 AFTER=15      clients and directories of each rank; seconds
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
CLIENTS=${CLIENTS:-1} DIRS=${DIRS:-100} BEFORE=${BEFORE:-15} AFTER=${AFTER:-15} VICTIM=2

begin "fail: pando bench steady --groups r0,r1,r2,r3 --dirs $DIRS --clients $CLIENTS, each at its rank of four; pando tell mds.$VICTIM crash" setfattr

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    rm -rf "$WORK/data" "$WORK/mnt"
    serve_ranks 5 4
    for rank in 0 1 2 3; do pinned r$rank $rank; done
    "$PANDO" -q umount "$WORK/mnt"
    load --groups r0,r1,r2,r3 --dirs "$DIRS" --clients "$CLIENTS"
    sleep "$BEFORE"
    before=$(life $VICTIM)
    asked=$(now)
    ask tell mds.$VICTIM crash
    sleep "$AFTER"
    end=$(now)
    active=$(life $VICTIM)
    [ -n "$active" ] && [ "$active" != "$before" ] || die "the rank does not come back in $AFTER s"
    unload
    read -r killed active < <(awk -v group=r$VICTIM -v asked="$asked" '
        $3 == group && $1 + $2 / 1e6 > asked && $2 + 0 > most { most = $2 + 0; from = $1; to = $1 + $2 / 1e6 }
        END { printf "%.6f %.6f\n", from, to }' "$WORK/calls")
    note active "$(minus "$active" "$asked")"
    for rank in 0 1 2 3; do
        who=others
        [ $rank != $VICTIM ] || who=victim
        span $who.before "$LOADED" "$killed" r$rank
        [ $who = victim ] || span $who.away "$killed" "$active" r$rank
        [ $who = victim ] || span $who.second "$killed" "$(awk -v from="$killed" -v to="$active" 'BEGIN { printf "%.6f", (to > from + 1) ? to : from + 1 }')" r$rank
        span $who.after "$killed" "$end" r$rank
    done
    kill "$SERVER" && wait_end "$SERVER" 60 || die "the server does not end"
done

echo
echo "served again after $(of active %.2f) s; its clients' longest call $(of longest.victim.after) ms; errors of its clients $(of errors.victim.after), of others $(of errors.others.after)"
echo "each other rank in the second from the kill on: calls/s $(of rate.others.second) against $(of rate.others.before) before: $(ratio rate.others.second rate.others.before); p99 $(of p99.others.second) us against $(of p99.others.before) us: $(ratio p99.others.second p99.others.before)"
echo "each other rank from the kill until it serves again: calls/s $(of rate.others.away) against $(of rate.others.before) before: $(ratio rate.others.away rate.others.before); p99 $(of p99.others.away) us against $(of p99.others.before) us: $(ratio p99.others.away p99.others.before)"
echo "their longest call: before $(of longest.others.before %.1f) ms, until then $(of longest.others.away %.1f) ms, until $AFTER s later $(of longest.others.after %.1f) ms"
costs
echo "wanted: active within 2 s, others 0.9 of their calls, p99 at most 2 times"
