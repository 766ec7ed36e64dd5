# make-fixture.sh VERSION: packs data folders as this version writes them, one stopped in order and one of a server that was
# killed with a journal to replay, and its mount with it, to which directories and inode numbers were delegated.
# Run once per release; later versions must open them (t_fixture.sh).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fixture.sh"
require xz setfacl setfattr
TEST=make-fixture
[ -n "${1:-}" ] || die "which version?"
place=$HERE/fixtures/$1
[ ! -e "$place" ] || die "$place exists: fixtures are never written again"
mkdir -p "$place"
pack() {
    tar -C "$WORK" --exclude='*.sock' --exclude='*/log/*' -S --hole-detection=raw -c "$1" | xz -9e >"$place/$1.tar.xz"
    xz -9e "$place/$1.facts"
}

up "$WORK/stopped" "$WORK/mnt"
check "the tree" fixture_tree "$WORK/mnt"
facts "$WORK/mnt" >"$place/stopped.facts" || die "facts"
down "$WORK/mnt"
clean "$WORK/stopped" || die "fsck"
pack stopped

VIA=socket
up "$WORK/killed" "$WORK/mnt"
mount=$("$PANDO" client ls --cluster "$WORK/killed" --json | grep -o '"pid":[0-9]*' | head -n 1 | cut -d: -f2)
[ -n "$mount" ] || die "the mount has no pid"
check "the tree again" fixture_tree "$WORK/mnt"
# Times and the like differ from those of the first.
facts "$WORK/mnt" >"$place/killed.facts" || die "facts"
find "$WORK/mnt" \( -type f -o -type d \) -exec sync {} +
kill9 "$mount"
kill9 "$SERVER"
umount -l "$WORK/mnt"
pack killed
ls -l "$place"
