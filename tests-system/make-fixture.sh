# make-fixture.sh VERSION: packs data folders as this version writes them, one stopped in order and one of a server that was
# killed with a journal to replay, and its mount with it, to which directories and inode numbers were delegated; both again of a
# server of three ranks.
# Run once per release; later versions must open them (t_fixture.sh).
. "$(dirname "$0")/lib.sh"
. "$HERE/fixture.sh"
. "$HERE/ranks.sh"
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
# killed_now NAME DATA: what there is is synced, and then the mount and its server are killed.
killed_now() {
    local mount
    mount=$("$PANDO" client ls --cluster "$2" --json | grep -o '"pid":[0-9]*' | head -n 1 | cut -d: -f2)
    [ -n "$mount" ] || die "the mount has no pid"
    # Times and the like differ from those of the first.
    facts "$WORK/mnt" >"$place/$1.facts" || die "facts"
    find "$WORK/mnt" \( -type f -o -type d \) -exec sync {} +
    kill9 "$mount"
    kill9 "$SERVER"
    umount -l "$WORK/mnt"
}
up "$WORK/killed" "$WORK/mnt"
check "the tree again" fixture_tree "$WORK/mnt"
killed_now killed "$WORK/killed"
pack killed

# several: a server of three ranks and a mount of it, with the tree.
several() {
    serve_ranks 4 3
    "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>"$WORK/err" || die "mount: $(cat "$WORK/err")"
    check "the tree at several ranks" spread_tree
}
# packed NAME: the folder of several ranks.
packed() { mv "$WORK/data" "$WORK/$1" && pack "$1"; }
several
facts "$WORK/mnt" >"$place/ranks_stopped.facts" || die "facts"
down "$WORK/mnt"
clean "$WORK/data" || die "fsck"
packed ranks_stopped
several
killed_now ranks_killed "$WORK/data"
packed ranks_killed
ls -l "$place"
