# kill -9 under load, ten times on one folder: after each, fsck is clean, the mount comes back, and everything
# ever noted as synced is there with its content.
. "$(dirname "$0")/lib.sh"
require
TEST=kill
ROUNDS=${PANDO_KILLS:-10}
cd "$WORK" || exit 1

lines() { cat "$WORK"/ack.* 2>/dev/null | wc -l; }
for round in $(seq "$ROUNDS"); do
    up "$WORK/data" "$WORK/mnt"
    mkdir -p "$WORK/mnt/synced" "$WORK/mnt/churn"
    before=$(lines)
    for writer in 1 2 3; do
        first=$(((round * 10 + writer) * 1000000))
        # Sizes on both sides of what is packed.
        size=$((writer == 3 ? 200000 : writer * 3000))
        "$PANDO" load write --first $first --bytes $size "$WORK/mnt/synced" "$WORK/ack.$round.$writer" 2>/dev/null &
        pids+=($!)
    done
    # Changes that nobody syncs: they may be lost, never half done.
    (
        cd "$WORK/mnt/churn" 2>/dev/null || exit
        for n in $(seq 100000); do
            mkdir "d$n" && echo $n >"d$n/a" && mv "d$n/a" "d$n/b" && ln "d$n/b" "l$n" && rm -r "d$((n - 5))" 2>/dev/null
            [ -d "$WORK/mnt/churn" ] || exit
        done
    ) 2>/dev/null &
    pids+=($!)
    # Killed after different amounts of work.
    until [ $(($(lines) - before)) -ge $((20 * round)) ] || ! [ -d "/proc/$SERVER" ]; do sleep 0.05; done
    kill9 "$SERVER"
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done
    pids=()
    umount -l "$WORK/mnt"
    check "round $round: fsck" clean "$WORK/data"
    up "$WORK/data" "$WORK/mnt"
    bad=0
    for ack in "$WORK"/ack.*; do
        "$PANDO" load verify "$WORK/mnt/synced" "$ack" >>"$WORK/verify" 2>&1 || bad=1
    done
    same "round $round: every synced file ($(lines))" 0 $bad
    [ $bad = 0 ] || tail -n 5 "$WORK/verify"
    halves=$(find "$WORK/mnt/churn" -mindepth 2 -type f ! -name a ! -name b | wc -l)
    same "round $round: no half operation" 0 "$halves"
    down "$WORK/mnt"
done
check "fsck at the end" clean "$WORK/data"
