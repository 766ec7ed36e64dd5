# A full disk: ENOSPC and nothing else; what was synced stays; unlink and truncate go on; writing goes on by
# itself once there is room. On an ext4 of its own, through a loop device.
. "$(dirname "$0")/lib.sh"
require mkfs.ext4 losetup
TEST=nospace
cd "$WORK" || exit 1

truncate -s 1G disk && mkfs.ext4 -q -F disk && mkdir small || die "no ext4"
mount -o loop disk small || die "no loop device"
loops+=("$WORK/small")
# The journal is bounded well below the disk, so that it is data that fills it.
printf 'journal_size = "32M"\n' >conf.toml
up small/data mnt --conf conf.toml
mkdir mnt/keep mnt/fill
check "some synced files" "$PANDO" load write --count 500 mnt/keep ack
n=0
while head -c 1000000 /dev/zero >mnt/fill/f$n 2>err && sync mnt/fill/f$n 2>>err; do
    n=$((n + 1))
    [ $n -lt 1000 ] || break
done
grep -q 'No space left' err && pass "the disk fills with ENOSPC after $n MB" || fail "ENOSPC" "$n: $(cat err)"
[ $n -gt 200 ] && pass "most of the disk was usable" || fail "most of the disk was usable" "$n of 1024 MB"
check "synced files are there" "$PANDO" load verify mnt/keep ack
check "unlink works" bash -c 'rm -r mnt/fill'
grep -q 'no space left: new data refused, unlink still works' small/data/log/pando.log &&
    pass "the log says so" || fail "the log says so" "$(tail -n 3 small/data/log/pando.log)"
wrote=0
for _ in $(seq 300); do
    if { head -c 1000000 /dev/zero >mnt/again && sync mnt/again; } 2>/dev/null; then wrote=1; break; fi
    sleep 0.1
done
same "writing goes on by itself" 1 $wrote
check "more synced files" "$PANDO" load write --first 1000 --count 200 mnt/keep ack
down mnt
check "fsck" clean small/data
up small/data mnt --conf conf.toml
check "all of them after a remount" "$PANDO" load verify mnt/keep ack
down mnt
umount small || fail "the disk is let go"
