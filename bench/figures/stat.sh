#!/usr/bin/env bash
# stat of FILES files, each once in an order without locality, through one mount whose daemon lives in a memory cgroup of LIMIT_MIB. `client` is a mount on
# the socket of a server outside the cgroup; `embedded` one that serves the folder itself, with a quarter of the limit for the rank's cache.
# The program that calls stat, and with it the kernel's own names and inodes, is outside. Caches are dropped before. Nothing changes.
#
#   FILES=5000000 DIRS=100 LIMIT_MIB=512 SIDES="client embedded"    wanted: completes, p99.9 less than 50 ms
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-5000000} DIRS=${DIRS:-100} LIMIT_MIB=${LIMIT_MIB:-512} SIDES=${SIDES:-client embedded}

begin "stat: pando bench mdtest -F -T -R on $FILES files in $DIRS directories; cgroup $LIMIT_MIB MiB"
group stat $((LIMIT_MIB << 20))
printf 'mds_cache_memory_limit = "%sM"\ndata_cache_limit = "%sM"\n' $((LIMIT_MIB / 4)) $((LIMIT_MIB / 4)) >"$WORK/embedded.toml"
: >"$WORK/client.toml"
tree=(bench mdtest -d "$WORK/mnt/tree" -F -z 1 -b $((DIRS - 1)) -I $((FILES / DIRS)) -u --np 1)
up "$WORK/data" "$WORK/mnt"
"$PANDO" "${tree[@]}" -C
down "$WORK/mnt"

for ((round = 1; round <= ROUNDS; round++)); do
    for side in $(sides $round $SIDES); do
        at=$WORK/data server=
        if [ "$side" = client ]; then
            serve "$WORK/data"
            at=unix:$WORK/data/pando.sock server=$SERVER
        fi
        drop_caches
        (inside "$GROUP" "$PANDO" --conf "$WORK/$side.toml" mount --format json "$at" "$WORK/mnt") >"$WORK/word"
        SERVER=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$WORK/word")
        pids+=("$SERVER")
        if "$PANDO" "${tree[@]}" -T -R --watch-pid "$SERVER" --json >"$WORK/out"; then
            note "completes.$side" 1
            note "rate.$side" "$(field file-stat ops_per_second <"$WORK/out")"
            for each in p50 p99 p999 max; do note "$each.$side" "$(field file-stat ${each}_us <"$WORK/out")"; done
            note "cpu.$side" "$(field file-stat server_cpu_seconds <"$WORK/out")"
            note "peak.$side" "$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$SERVER/status")"
            echo "round $round, $side: $(tail -n 1 "$WORK/note.rate.$side") stats/s, p99.9 $(tail -n 1 "$WORK/note.p999.$side") us, longest $(tail -n 1 "$WORK/note.max.$side") us"
            down "$WORK/mnt"
        else
            note "completes.$side" 0
            echo "round $round, $side: did not complete$(gone "$SERVER" && echo ": the daemon is gone")"
            umount -l "$WORK/mnt" 2>/dev/null || true
            end "$SERVER"
        fi
        [ -z "$server" ] || { kill "$server"; wait_end "$server" 600 || die "the server does not end"; }
    done
done

echo
echo "median (least to most); CPU s of the daemon in the cgroup"
for side in $SIDES; do
    echo "$side: $(awk '{ sum += $1 } END { print sum + 0 }' "$WORK/note.completes.$side") of $ROUNDS runs completed"
    [ ! -e "$WORK/note.rate.$side" ] ||
        echo "$side: $(of "rate.$side") stats/s, p50 $(of "p50.$side") us, p99 $(of "p99.$side") us, p99.9 $(of "p999.$side") us, longest $(of "max.$side") us; resident at its peak $(of "peak.$side") MiB; CPU s $(of "cpu.$side" %.1f)"
done
echo "wanted: completes, p99.9 less than 50000 us"
