#!/usr/bin/env bash
# Renames of files from a directory of one rank to one of another, against renames from directory to directory at one rank, by one client of the same kind, by
# turns. Both are answered when they are durable.
#
#   SECONDS_EACH=15 DIRS=16
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
SECONDS_EACH=${SECONDS_EACH:-15} DIRS=${DIRS:-16}

begin "rename: pando bench steady --groups a --to b (both rank 1's) against --to c (rank 2's), --dirs $DIRS --clients 1 --seconds $SECONDS_EACH" setfattr
serve_ranks 3 3
for each in "a 1" "b 1" "c 2"; do
    read -r name rank <<<"$each"
    pinned "$name" "$rank"
done
"$PANDO" -q umount "$WORK/mnt"
for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    for kind in $(sides "$round" local across); do
        to=b
        [ $kind = local ] || to=c
        load "$SECONDS_EACH" --groups a --to $to --dirs "$DIRS"
        wait_end "$LOAD" $((SECONDS_EACH + 60)) || die "the load does not end"
        cat "$WORK/load"
        echo "$kind: $(words 0 9999999999)"
        read -r rate p50 p99 _ _ errors < <(part 0 9999999999)
        [ "$errors" = 0 ] || die "renames fail"
        note rate.$kind "$rate"
        note p50.$kind "$p50"
        note p99.$kind "$p99"
    done
done

echo
for kind in local across; do echo "$kind: $(of rate.$kind)/s, p50 $(of p50.$kind) us, p99 $(of p99.$kind) us"; done
echo "across to local: p50 $(ratio p50.across p50.local), p99 $(ratio p99.across p99.local)"
echo "durability: on disk when answered, both; wanted: 3"
