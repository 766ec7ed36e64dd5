#!/usr/bin/env bash
# Six ranks under load whose bal_rank_mask is 0x38 and becomes 0x7: what ranks 3 to 5 still have and are asked SECONDS later, and what calls take meanwhile.
#
#   DIRS=10000 CLIENTS=4 BEFORE=20 SECONDS_AFTER=180
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
DIRS=${DIRS:-10000} CLIENTS=${CLIENTS:-4} BEFORE=${BEFORE:-20} SECONDS_AFTER=${SECONDS_AFTER:-180}

begin "mask: pando bench steady --dirs $DIRS --clients $CLIENTS, placement hash, 6 ranks; bal_rank_mask 0x38, then 0x7; looked at after $SECONDS_AFTER s"
# of_ranks COLUMN: of ranks 3 to 5 in `fs status --format json`: dns or rate.
of_ranks() { ask --format json fs status | python3 -c '
import json, sys
print(sum(row.get(sys.argv[1], 0) for row in json.load(sys.stdin)["mdsmap"] if row.get("rank", -1) >= 3))' "$1"; }
slots() { ask --format json fs get pandofs | python3 -c '
import json, sys
print(sum(row["slots"] for row in json.load(sys.stdin)["mdsmap"]["slots"] if row["rank"] >= 3))'; }
emptied() { [ "$(slots)" = 0 ]; }
all_there() { [ "$(slots)" = 4096 ]; }

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    rm -rf "$WORK/data"
    serve_ranks 6 6
    ask fs set pandofs bal_rank_mask 0x38 >/dev/null
    ask fs set pandofs placement hash >/dev/null
    until_true all_there
    "$PANDO" bench steady "unix:$WORK/data/pando.sock" --dirs "$DIRS" --seconds 0
    load $((BEFORE + SECONDS_AFTER + 20)) --dirs "$DIRS" --clients "$CLIENTS"
    until_true grep -q ' ops ' "$WORK/load"
    sleep "$BEFORE"
    echo "ranks 3 to 5 before: $(of_ranks dns) dentries, $(of_ranks rate) requests/s, $(slots) slots"
    changed=$(now)
    ask fs set pandofs bal_rank_mask 0x7
    until=$((SECONDS + SECONDS_AFTER))
    empty=
    while [ $SECONDS -lt $until ]; do
        [ -n "$empty" ] || ! emptied || empty=$(now)
        sleep 1
    done
    dentries=$(of_ranks dns) requests=$(of_ranks rate) left=$(slots)
    end=$(now)
    kill "$LOAD" && wait_end "$LOAD" 10
    cat "$WORK/load"
    echo "before: $(words 0 "$changed")"
    echo "after: $(words "$changed" "$end")"
    for ((at = 0; at < SECONDS_AFTER; at += 10)); do
        from=$(awk -v a="$changed" -v b=$at 'BEGIN { printf "%.3f", a + b }')
        echo "from $at s on: $(words "$from" "$(awk -v a="$from" 'BEGIN { printf "%.3f", a + 10 }')")"
    done
    echo "ranks 3 to 5: $dentries dentries, $requests requests/s, $left slots; without slots after ${empty:+$(minus "$empty" "$changed") s}"
    note dentries "$dentries"
    note requests "$requests"
    note slots "$left"
    note p99.before "$(part 0 "$changed" | awk '{ print $3 }')"
    note p99.after "$(part "$changed" "$end" | awk '{ print $3 }')"
    note highest "$(part "$changed" "$end" | awk '{ print $5 / 1000 }')"
    note errors "$(part "$changed" "$end" | awk '{ print $6 }')"
    kill "$SERVER" && wait_end "$SERVER" 60 || die "the server does not end"
done

echo
echo "ranks 3 to 5 after $SECONDS_AFTER s: $(of dentries) dentries, $(of requests) requests/s, $(of slots) slots; p99 before $(of p99.before) us, after $(of p99.after) us, highest $(of highest %.1f) ms; errors $(of errors)"
echo "wanted: fewer than 1000 dentries, fewer than 10 requests/s"
