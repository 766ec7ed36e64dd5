#!/usr/bin/env bash
# Sequential file data: 1 MiB writes of one file with a sync at the end, and reads of it with dropped caches, through a mount and
# through the null responder that keeps contents in plain files on the same disk, in turn. The null responder's fsync does nothing, so
# its file is synced beneath it within the measured time: both sides' data is on disk when the write is over.
#
#   SIZE_MIB=4096    wanted: 0.8 of the null responder
. "$(dirname "$0")/lib.sh"
SIZE_MIB=${SIZE_MIB:-4096}

begin "sequential: dd bs=1M count=$SIZE_MIB conv=fsync, then dd to /dev/null with dropped caches" "$NULL"

# start SIDE: mounts it at WORK/mnt; SERVER is its process.
start() {
    if [ "$1" = pando ]; then
        up "$WORK/data" "$WORK/mnt"
        return
    fi
    mkdir -p "$WORK/mnt"
    "$NULL" "$WORK/mnt" uring data="$WORK/plain" 2>"$WORK/null.log" &
    SERVER=$!
    pids+=("$SERVER")
    disown "$SERVER"
    until_true mountpoint -q "$WORK/mnt"
}

# timed KEY COMMAND...: MiB/s and the daemon's CPU seconds.
timed() {
    local key=$1 start used
    shift
    used=$(cpu "$SERVER") start=$EPOCHREALTIME
    "$@"
    note "$key" "$(per "$SIZE_MIB" "$(minus "$EPOCHREALTIME" "$start")")"
    note "cpu.$key" "$(minus "$(cpu "$SERVER")" "$used")"
    echo "$key: $(tail -n 1 "$WORK/note.$key") MiB/s, CPU s $(tail -n 1 "$WORK/note.cpu.$key")"
}
write() {
    dd if=/dev/zero of="$WORK/mnt/file" bs=1M count="$SIZE_MIB" conv=fsync status=none
    [ "$1" = pando ] || sync "$WORK"/plain/*
}
read_() { dd if="$WORK/mnt/file" of=/dev/null bs=1M status=none; }

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    for side in $(sides $round pando null); do
        start "$side"
        drop_caches
        timed "$side.write" write "$side"
        drop_caches
        timed "$side.read" read_
        umount "$WORK/mnt"
        wait_end "$SERVER" 120 || die "$side goes on without its mount"
        rm -rf "$WORK/data" "$WORK/plain"
    done
done

echo
echo "MiB/s, median (least to most); CPU s of the threads of the process that answers FUSE"
for way in write read; do
    echo "$way: PandoFS $(of pando.$way), null responder $(of null.$way), ratio $(ratio pando.$way null.$way); CPU s $(of cpu.pando.$way %.1f), $(of cpu.null.$way %.1f)"
done
echo "durability: on disk at the end of a write, both sides; wanted: 0.8"
