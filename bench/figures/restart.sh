#!/usr/bin/env bash
# From the start of a mount to its first answer, after a server was killed with OPERATIONS creations in its journal that no checkpoint had
# stored. Each of them was answered over the socket, which means: on disk. The page cache is as the killed process left it.
#
#   OPERATIONS=1000000    wanted: less than 5 s
#   COLD=1                drop the page cache before the mount
. "$(dirname "$0")/lib.sh"
OPERATIONS=${OPERATIONS:-1000000} COLD=${COLD:-}

begin "restart: kill -9 after $OPERATIONS creations without a checkpoint${COLD:+, page cache dropped}"
for ((round = 1; round <= ROUNDS; round++)); do
    rm -rf "$WORK/data"
    serve "$WORK/data"
    "$PANDO" bench list "unix:$WORK/data/pando.sock" --entries "$OPERATIONS" --seconds 0 >"$WORK/out"
    end "$SERVER"
    [ -z "$COLD" ] || drop_caches
    start=$EPOCHREALTIME
    up "$WORK/data" "$WORK/mnt"
    stat "$WORK/mnt/list/file.000000000000000" >/dev/null
    took=$(minus "$EPOCHREALTIME" "$start")
    replayed=$(sed -n 's/.*replayed \([0-9]*\) transactions.*/\1/p' "$WORK/data/log/pando.log" | tail -n 1)
    echo "round $round: $replayed transactions replayed, first answer after $took s, CPU s of the daemon $(cpu "$SERVER")"
    [ "$replayed" -ge "$OPERATIONS" ] || die "a checkpoint came between: set OPERATIONS lower"
    note seconds "$took"
    note cpu "$(cpu "$SERVER")"
    note replayed "$replayed"
    down "$WORK/mnt"
done

echo
echo "seconds to the first answer after $(of replayed) transactions: $(of seconds %.2f), CPU s $(of cpu %.2f); wanted: less than 5"
