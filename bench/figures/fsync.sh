#!/usr/bin/env bash
# Durable small files: create, write 4 KiB, fsync and close, in a mount whose data folder is on a disk and in a folder of the same
# disk's file system, in turn. Both answer fsync when the disk has the file. Nothing is removed before the end: ext4 walks past
# inodes freed lately.
#
#   TASKS="1:12000 4:6000 16:3000"    processes:files of each; wanted ratios 0.9, 1.2, 1.5
#   IMAGE=12G    both sides in an ext4 as mkfs.ext4 makes it, with its journal, in an image of this size; 0: in what is on DISK
. "$(dirname "$0")/lib.sh"
TASKS=${TASKS:-1:12000 4:6000 16:3000}

IMAGE=${IMAGE:-12G}

begin "fsync: pando bench mdtest -F -C -w 4096 -y -u --np N -n FILES" mkfs.ext4 losetup
place=$WORK
if [ "$IMAGE" != 0 ]; then
    place=$WORK/image
    mkdir "$place"
    # Allocated and initialised before anything is measured.
    fallocate -l "$IMAGE" "$WORK/image.ext4"
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$WORK/image.ext4"
    mount -o loop "$WORK/image.ext4" "$place"
    losetup --direct-io=on "$(findmnt -n -o SOURCE --target "$place")"
fi
mkdir "$place/disk"
up "$place/data" "$WORK/mnt"
device=$(findmnt -n -o SOURCE --target "$place")
disk=$(findmnt -n -o FSTYPE --target "$place")
features=$(dumpe2fs -h "$device" 2>/dev/null | sed -n 's/^Filesystem features: *//p')
[[ $disk != ext4 || $features == *has_journal* ]] || disk="ext4 without a journal"
echo "both sides: $disk on $device"
TIMEFORMAT='%U %S'

# one ROUND SIDE PROCESSES FILES
one() {
    local dir=$WORK/mnt used
    [ "$2" = pando ] || dir=$place/disk
    { time "$PANDO" bench mdtest -F -C -w 4096 -y -n "$4" -u --np "$3" -d "$dir/$1-$3" --watch-pid "$SERVER" >"$WORK/out"; } 2>"$WORK/time"
    used=$(awk '{ print $1 + $2 }' "$WORK/time")
    echo "round $1 $2 np=$3: $(grep ^file-create "$WORK/out"); cpu s of the tasks $used"
    note "$2.$3" "$(phase file-create 3 <"$WORK/out")"
    note "cpu.$2.$3" "$(awk -v tasks="$used" -v server="$(phase file-create 6 <"$WORK/out")" -v side="$2" 'BEGIN { print tasks + (side == "pando" ? server : 0) }')"
}

for ((round = 1; round <= ROUNDS; round++)); do
    for task in $TASKS; do
        for side in $(sides $round pando disk); do one $round "$side" "${task%:*}" "${task#*:}"; done
    done
done
down "$WORK/mnt"

echo
echo "files/s, median (least to most); CPU s of a run: mdtest's processes, and for PandoFS the daemon's threads"
echo "durability: fsync answered when on disk, both sides"
for task in $TASKS; do
    np=${task%:*}
    echo "np $np: PandoFS $(of "pando.$np"), $disk $(of "disk.$np"), ratio $(ratio "pando.$np" "disk.$np"); CPU s $(of "cpu.pando.$np" %.2f), $(of "cpu.disk.$np" %.2f)"
done
echo "wanted: 0.9 with 1 process, 1.2 with 4, 1.5 with 16"
