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

# Small files on a small disk: the next segment they would reserve is as large as the ballast. Given time it took what that
# left, and the journal had no room for unlinks.
writes_again() {
    local _
    for _ in $(seq 300); do
        if { echo again >mnt/again && sync mnt/again; } 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    return 1
}
# What was removed is given back, and the ballast is there.
roomy() {
    local _
    for _ in $(seq 300); do
        [ -e packed/pando.ballast ] && [ "$(df -k --output=avail packed | tail -n 1)" -gt 20000 ] && return 0
        sleep 0.1
    done
    df -k packed
    return 1
}
truncate -s 256M disk4 && mkfs.ext4 -q -m0 -F disk4 && mkdir packed || die "no ext4"
mount -o loop disk4 packed || die "no loop device"
loops+=("$WORK/packed")
rmdir packed/lost+found
up ./packed mnt
for way in unlink restart truncate; do
    check "$way: there is room" roomy
    mkdir mnt/small
    head -c 256M /dev/urandom | split -a 5 -d -b 4096 - mnt/small/f 2>err
    grep -q 'No space left' err && pass "$way: 4 KiB files until ENOSPC" || fail "$way: 4 KiB files until ENOSPC" "$(cat err)"
    n=$(find mnt/small -size +0 | wc -l)
    [ "$n" -gt 15000 ] && pass "$way: most of the room was usable" || fail "$way: most of the room was usable" "$n files"
    let_pass 3 "housekeeping looks once in a second"
    # The ballast is back where what an earlier round removed was given back only now.
    [ -e packed/pando.ballast ] || [ "$(df -k --output=avail packed | tail -n 1)" -gt 40000 ] && pass "$way: what the ballast left stays free" ||
        fail "$way: what the ballast left stays free" "$(df -k packed)"
    if [ $way = restart ]; then
        kill9 "$SERVER"
        umount -l mnt
        up ./packed mnt
    fi
    if [ $way = truncate ]; then
        check "truncate goes on" bash -c 'find mnt/small -type f -print0 | xargs -0 truncate -s 2000'
        check "truncate: writing goes on by itself" writes_again
        down mnt
        up ./packed mnt
    fi
    check "$way: rm -rf" rm -rf mnt/small
    check "$way: writing goes on by itself" writes_again
done
down mnt
same "no rank was lost" 0 "$(grep -c 'damaged\|commit failed' packed/log/pando.log)"
check "fsck" clean packed
umount packed || fail "the disk is let go"

# A disk so small that the journal, at full size, would leave no room for the ballast to come back.
tmpfs() {
    mkdir -p "$2" && mount -t tmpfs -o "size=$1" tmpfs "$2" || die "no tmpfs"
    loops+=("$WORK/$2")
}
tmpfs 40m tiny
text=$("$PANDO" mount tiny/d mnt 2>&1)
same "a disk that is too small is refused" 1 $?
same "and says what is needed" "pando mount: tiny/d: needs at least 192 MiB free, has 40
  do: free some, or choose a folder on a larger device" "$text"
same "and nothing is left there" "" "$(ls -A tiny)"
umount tiny
field() { "$PANDO" status --format json --cluster "$1" | grep -o "\"$2\": *[a-z0-9]*" | head -n 1 | sed 's/.*: *//'; }
for size in 200 300; do
    tmpfs ${size}m tf
    up tf/d mnt
    check "$size MiB: a file" bash -c 'head -c 10000 /dev/urandom >mnt/small && sync mnt/small'
    dd if=/dev/urandom of=mnt/big bs=1M count=2000 2>err
    grep -q 'No space left' err && pass "fills" || fail "fills" "$(cat err)"
    for _ in $(seq 100); do [ "$(field tf/d full)" = true ] && break; sleep 0.1; done
    same "status says full" true "$(field tf/d full)"
    same "and has nothing to give" 0 "$(field tf/d available)"
    same "nor has df" 0 "$(df --output=avail mnt | tail -n 1 | tr -d ' ')"
    check "unlink" rm mnt/big
    wrote=0
    for _ in $(seq 300); do
        if { echo again >mnt/again && sync mnt/again; } 2>/dev/null; then wrote=1; break; fi
        sleep 0.1
    done
    same "writing goes on by itself" 1 $wrote
    down mnt
    check "fsck" clean tf/d
    umount tf
done
