#!/usr/bin/env bash
# max_mds from 4 to 5 under load, where each directory is placed by hash: how many of the 4,096 slots have another rank afterwards, and what calls meanwhile take, until a
# second after the last move.
#
#   DIRS=10000 CLIENTS=4 BEFORE=20 AFTER=20    seconds; AFTER begins when the new rank has its slots
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
DIRS=${DIRS:-10000} CLIENTS=${CLIENTS:-4} BEFORE=${BEFORE:-20} AFTER=${AFTER:-20} MOST=${MOST:-300}

begin "grow: pando bench steady --dirs $DIRS --clients $CLIENTS, placement hash; pando fs set pandofs max_mds 5" python3
# slots: the rank of each, a line each; fails while any moves.
slots() { ask --format json fs get pandofs | python3 -c '
import json, sys
rows = json.load(sys.stdin)["mdsmap"]["slots"]
owner = {slot: row["rank"] for row in rows for first, last in row["runs"] for slot in range(first, last + 1)}
print(*(owner[slot] for slot in range(4096)), sep="\n")
sys.exit(any(row["moving"] for row in rows))'; }
# settled RANKS: each has its part.
settled() { slots >"$WORK/slots" && [ "$(sort "$WORK/slots" | uniq -c | awk -v least=$((4096 / $1)) '$1 >= least' | wc -l)" = "$1" ]; }

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    rm -rf "$WORK/data"
    serve_ranks 5 4
    ask fs set pandofs placement hash >/dev/null
    until_true settled 4
    mv "$WORK/slots" "$WORK/slots.before"
    "$PANDO" bench steady "unix:$WORK/data/pando.sock" --dirs "$DIRS" --seconds 0
    load --dirs "$DIRS" --clients "$CLIENTS"
    sleep "$BEFORE"
    grown=$(now)
    ask fs set pandofs max_mds 5
    for ((i = 0; i < MOST * 2; i++)); do settled 5 && break; sleep 0.5; done
    full=$(now)
    sleep "$AFTER"
    end=$(now)
    settled 5 || die "the slots do not come to rest in $MOST s"
    unload
    read -r moved astray < <(paste "$WORK/slots.before" "$WORK/slots" | awk '$1 != $2 { n++; if ($2 != 4) astray++ } END { print n + 0, astray + 0 }')
    echo "slots of each rank, before: $(sort "$WORK/slots.before" | uniq -c | awk '{ print $1 }' | paste -sd' '), after: $(sort "$WORK/slots" | uniq -c | awk '{ print $1 }' | paste -sd' '); $moved have another rank, $astray of them another one than the new one"
    note moved "$(awk -v n="$moved" 'BEGIN { print n * 100 / 4096 }')"
    note astray "$astray"
    note seconds "$(minus "$full" "$grown")"
    rest=$(awk -v a="$full" 'BEGIN { printf "%.3f", a + 1 }')
    span before "$LOADED" "$grown"
    span meanwhile "$grown" "$rest"
    span after "$rest" "$end"
    kill "$SERVER" && wait_end "$SERVER" 60 || die "the server does not end"
done

echo
echo "moved: $(of moved %.1f) % of the slots in $(of seconds %.1f) s ($(of astray) slots not to the new rank); longest call until 1 s later $(of longest.meanwhile %.1f) ms"
for name in before meanwhile after; do echo "$name: $(of rate.$name) calls/s, p50 $(of p50.$name) us, p99 $(of p99.$name) us, longest $(of longest.$name %.1f) ms, errors $(of errors.$name)"; done
costs
echo "wanted: 18 to 22 %, no call over 100 ms"
