#!/usr/bin/env bash
# `du -s` of FILES empty files that are not in memory, and the same after `pando warmup --metadata`. Before each the file system is unmounted and the
# system's caches are dropped, so that the kernel knows no name in either case; warmed, the rank does. Nothing changes.
#
#   FILES=1000000 DIRS=1000    wanted: ten times faster; what the warmup itself takes is told beside
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-1000000} DIRS=${DIRS:-1000}

begin "warmup: du -s of $FILES files in $DIRS directories, cold and after pando warmup --metadata" du
up "$WORK/data" "$WORK/mnt"
"$PANDO" bench mdtest -d "$WORK/mnt/tree" -F -z 1 -b $((DIRS - 1)) -I $((FILES / DIRS)) -u --np 1 -C
down "$WORK/mnt"

# timed KEY COMMAND...
timed() {
    local key=$1 start used
    shift
    used=$(cpu "$SERVER") start=$EPOCHREALTIME
    "$@" >"$WORK/out"
    note "$key" "$(minus "$EPOCHREALTIME" "$start")"
    note "cpu.$key" "$(minus "$(cpu "$SERVER")" "$used")"
    echo "round $round, $key: $(tail -n 1 "$WORK/note.$key") s"
}

for ((round = 1; round <= ROUNDS; round++)); do
    for side in $(sides $round cold warm); do
        drop_caches
        up "$WORK/data" "$WORK/mnt"
        [ $side = cold ] || timed warmup "$PANDO" warmup "$WORK/mnt" --metadata
        timed $side du -s "$WORK/mnt"
        down "$WORK/mnt"
    done
done

echo
echo "seconds, median (least to most); CPU s of the daemon"
for key in cold warm warmup; do echo "$key: $(of $key %.2f), CPU s $(of cpu.$key %.1f)"; done
echo "cold to warm: $(ratio cold warm)"
echo "wanted: 10"
