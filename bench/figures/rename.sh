#!/usr/bin/env bash
# Renames of files from a directory of one rank to one of another, against renames from directory to directory at one rank, by one client of the same kind, by
# turns. Both are answered when they are durable.
#
#   SECONDS_EACH=15 DIRS=16
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
SECONDS_EACH=${SECONDS_EACH:-15} DIRS=${DIRS:-16}

begin "rename: pando bench steady --groups a --to b (both rank 1's) against --to c (rank 2's), --dirs $DIRS --clients 1, $SECONDS_EACH s" setfattr python3
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
        BEFORE=$(requests 1 2)
        load --groups a --to $to --dirs "$DIRS"
        used=$(cpu "$SERVER")
        sleep "$SECONDS_EACH"
        end=$(now)
        note "server.$kind" "$(minus "$(cpu "$SERVER")" "$used")"
        unload
        span $kind "$LOADED" "$end"
        [ "$(tail -n 1 "$WORK/note.errors.$kind")" = 0 ] || die "renames fail"
        echo "$kind: requests of ranks 1 and 2: $(served 1 2)"
    done
done

echo
for kind in local across; do echo "$kind: $(of rate.$kind)/s, p50 $(of p50.$kind) us, p99 $(of p99.$kind) us, longest $(of longest.$kind %.1f) ms; CPU s of the server in $SECONDS_EACH s $(of server.$kind %.2f)"; done
echo "across to local: p50 $(ratio p50.across p50.local), p99 $(ratio p99.across p99.local), calls/s $(ratio rate.across rate.local)"
costs
echo "wanted: 3"
