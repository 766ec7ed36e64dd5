#!/usr/bin/env bash
# Durable small files: create, write 4 KiB, fsync and close, in a mount and in a folder of the same disk's own file system, in
# turn. Both answer fsync when the disk has the file. Nothing is removed before the end: ext4 walks past inodes freed lately.
#
#   TASKS="1:12000 4:6000 16:3000"    processes:files of each; wanted ratios 0.9, 1.2, 1.5
. "$(dirname "$0")/lib.sh"
TASKS=${TASKS:-1:12000 4:6000 16:3000}

begin "fsync: pando bench mdtest -F -C -w 4096 -y -u --np N -n FILES"
mkdir "$WORK/disk"
up "$WORK/data" "$WORK/mnt"
disk=$(findmnt -n -o FSTYPE --target "$WORK/disk")
TIMEFORMAT='%U %S'

# one ROUND SIDE PROCESSES FILES
one() {
    local dir=$WORK/mnt used
    [ "$2" = pando ] || dir=$WORK/disk
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
