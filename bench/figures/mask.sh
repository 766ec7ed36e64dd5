#!/usr/bin/env bash
# Six ranks under load whose bal_rank_mask is 0x38 and becomes 0x7: what each of ranks 3 to 5 still has and is asked SECONDS_AFTER later, and what calls take
# meanwhile. DIRS directories are placed by hash and move as slots; MOVED ones, of a tree of rank 0, were given to ranks 3 to 5 by `pando subtree move` and move one by one.
#
#   DIRS=10000 MOVED=100 CLIENTS=2 BEFORE=20 SECONDS_AFTER=180     clients of either kind of directory
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
DIRS=${DIRS:-10000} MOVED=${MOVED:-100} CLIENTS=${CLIENTS:-2} BEFORE=${BEFORE:-20} SECONDS_AFTER=${SECONDS_AFTER:-180}

begin "mask: pando bench steady --groups hashed,moved --dirs $DIRS,$MOVED --clients $CLIENTS, placement hash of the first, 6 ranks; bal_rank_mask 0x38, then 0x7; looked at after $SECONDS_AFTER s" python3
# of_ranks COLUMN: of ranks 3, 4 and 5 in `fs status --format json`: dns or rate.
of_ranks() { ask --format json fs status | python3 -c '
import json, sys
print(*(row.get(sys.argv[1], 0) for row in json.load(sys.stdin)["mdsmap"] if row.get("rank", -1) >= 3))' "$1"; }
# slots: of ranks 3 to 5, and how many slots move anywhere.
slots() { ask --format json fs get pandofs | python3 -c '
import json, sys
rows = json.load(sys.stdin)["mdsmap"]["slots"]
print(sum(row["slots"] for row in rows if row["rank"] >= 3), sum(row["moving"] for row in rows))'; }
# units: moved directories of ranks 3 to 5, and how many of them move anywhere.
units() { ask --format json subtree ls | python3 -c '
import json, sys
rows = [row for row in json.load(sys.stdin)["subtrees"] if row["policy"] == "carved"]
print(sum(row["rank"] >= 3 for row in rows), sum(row["moving"] is not None for row in rows))'; }
has() { [ "$(slots), $(units)" = "$1 0, $2 0" ]; }
most() { tr ' ' '\n' | sort -g | tail -n 1; }
# worst FROM TO: the highest p99 of a second, of either kind of directory.
worst() { awk -v from="$1" -v to="$2" '$3 == "ops" && $1 > from && $1 <= to && $8 > most { most = $8 } END { print most + 0 }' "$WORK/load"; }

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    rm -rf "$WORK/data" "$WORK/mnt"
    mkdir "$WORK/mnt"
    serve_ranks 6 6
    ask fs set pandofs bal_rank_mask 0x38 >/dev/null
    "$PANDO" bench steady "unix:$WORK/data/pando.sock" --groups moved --dirs "$MOVED" --seconds 0 >/dev/null
    "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt"
    for ((i = 0; i < MOVED; i++)); do ask subtree move "$WORK/mnt/moved/d$i" $((3 + i % 3)) >/dev/null; done
    "$PANDO" -q umount "$WORK/mnt"
    ask fs set pandofs placement hash >/dev/null
    until_true has 4096 "$MOVED"
    "$PANDO" bench steady "unix:$WORK/data/pando.sock" --groups hashed --dirs "$DIRS" --seconds 0
    load --groups hashed,moved --dirs "$DIRS,$MOVED" --clients "$CLIENTS"
    sleep "$BEFORE"
    echo "ranks 3, 4, 5 before: $(of_ranks dns) dentries, $(of_ranks rate) requests/s; $(slots) slots, $(units) directories (theirs, moving)"
    changed=$(now)
    ask fs set pandofs bal_rank_mask 0x7
    until=$((SECONDS + SECONDS_AFTER))
    empty=
    while [ $SECONDS -lt $until ]; do
        [ -n "$empty" ] || ! has 0 0 || empty=$(now)
        sleep 1
    done
    dentries=$(of_ranks dns) requests=$(of_ranks rate) left="$(slots) slots, $(units) directories (theirs, moving)"
    end=$(now)
    unload
    ten=$(awk -v a="$changed" 'BEGIN { printf "%.3f", a + 10 }')
    for group in hashed moved; do
        span $group.before "$LOADED" "$changed" $group
        span $group.first "$changed" "$ten" $group
        span $group.after "$ten" "$end" $group
    done
    note worst.before "$(worst "$LOADED" "$changed")"
    note worst.first "$(worst "$changed" "$ten")"
    note worst.after "$(worst "$ten" "$end")"
    echo "ranks 3, 4, 5: $dentries dentries, $requests requests/s; $left; ${empty:+all of it left after $(minus "$empty" "$changed") s}"
    note dentries "$(most <<<"$dentries")"
    note requests "$(most <<<"$requests")"
    note left "$(awk '{ print $1 + $3 }' <<<"$(slots) $(units)")"
    note empty "$(minus "${empty:-$end}" "$changed")"
    kill "$SERVER" && wait_end "$SERVER" 60 || die "the server does not end"
done

echo
echo "the one of ranks 3 to 5 that has most, after $SECONDS_AFTER s: $(of dentries) dentries, $(of requests) requests/s; all slots and directories are elsewhere after $(of empty %.1f) s ($(of left) are not)"
for group in hashed moved; do
    for when in before first after; do
        echo "$group, $when: $(of rate.$group.$when) calls/s, p50 $(of p50.$group.$when) us, p99 $(of p99.$group.$when) us, longest $(of longest.$group.$when %.1f) ms, errors $(of errors.$group.$when)"
    done
done
echo "the highest p99 of a second: before $(of worst.before) us, in the first 10 s $(of worst.first) us, later $(of worst.after) us; p99 of the first 10 s to that before: hashed $(ratio p99.hashed.first p99.hashed.before), moved $(ratio p99.moved.first p99.moved.before)"
costs
echo "wanted: of each fewer than 1000 dentries and fewer than 10 requests/s within 180 s, p99 flat"
