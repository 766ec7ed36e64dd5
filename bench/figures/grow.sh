#!/usr/bin/env bash
# max_mds from 4 to 5 under load, where each directory is placed by hash: how many slots move, and what calls meanwhile take.
#
#   DIRS=10000 CLIENTS=4 BEFORE=20 AFTER=20    seconds; AFTER begins when the new rank has its slots
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
DIRS=${DIRS:-10000} CLIENTS=${CLIENTS:-4} BEFORE=${BEFORE:-20} AFTER=${AFTER:-20} MOST=${MOST:-300}

begin "grow: pando bench steady --dirs $DIRS --clients $CLIENTS, placement hash; pando fs set pandofs max_mds 5" setfattr
# slots RANK: how many it has, and how many slots move.
slots() { ask --format json fs get pandofs | python3 -c '
import json, sys
rows = json.load(sys.stdin)["mdsmap"]["slots"]
print(sum(row["slots"] for row in rows if row["rank"] == int(sys.argv[1])), sum(row["moving"] for row in rows))' "$1"; }
settled() { local at; at=$(slots 4) && [ "${at#* }" = 0 ] && [ "${at% *}" -ge 819 ]; }

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    rm -rf "$WORK/data"
    serve_ranks 5 4
    ask fs set pandofs placement hash >/dev/null
    "$PANDO" bench steady "unix:$WORK/data/pando.sock" --dirs "$DIRS" --seconds 0
    load $((BEFORE + AFTER + MOST)) --dirs "$DIRS" --clients "$CLIENTS"
    until_true grep -q ' ops ' "$WORK/load"
    sleep "$BEFORE"
    grown=$(now)
    ask fs set pandofs max_mds 5
    for ((i = 0; i < MOST; i++)); do settled && break; sleep 1; done
    full=$(now)
    slots 4
    sleep "$AFTER"
    end=$(now)
    kill "$LOAD" && wait_end "$LOAD" 10
    cat "$WORK/load"
    echo "before: $(words 0 "$grown")"
    echo "meanwhile ($(minus "$full" "$grown") s): $(words "$grown" "$full")"
    echo "after: $(words "$full" "$end")"
    note seconds "$(minus "$full" "$grown")"
    read -r moved _ < <(slots 4)
    note moved "$(awk -v n="$moved" 'BEGIN { print n * 100 / 4096 }')"
    note highest "$(part "$grown" "$full" | awk '{ print $5 / 1000 }')"
    for each in "before 0 $grown" "meanwhile $grown $full" "after $full $end"; do
        read -r name from to <<<"$each"
        note "p99.$name" "$(part "$from" "$to" | awk '{ print $3 }')"
        note "rate.$name" "$(part "$from" "$to" | awk '{ print $1 }')"
        note "errors" "$(part "$from" "$to" | awk '{ print $6 }')"
    done
    kill "$SERVER" && wait_end "$SERVER" 60 || die "the server does not end"
done

echo
echo "moved: $(of moved %.1f) % of the slots in $(of seconds %.1f) s; highest latency meanwhile $(of highest %.1f) ms; errors $(of errors)"
for name in before meanwhile after; do echo "$name: $(of "rate.$name") calls/s, p99 $(of "p99.$name") us"; done
echo "wanted: 18 to 22 %, 100 ms"
