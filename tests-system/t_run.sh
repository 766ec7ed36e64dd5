# The first README command as a newcomer gives it: relative paths, nothing there; then again, which reuses the mount.
. "$(dirname "$0")/lib.sh"
require
TEST=run
cd "$ROOT" || exit 1
# Spaces in a relative path are one more thing that a newcomer has.
PANDO_DATA=$(realpath --relative-to=. "$WORK")/data PANDO_MNT=$(realpath --relative-to=. "$WORK")/mnt
export PANDO_DATA PANDO_MNT

if text=$(make --no-print-directory run 2>&1); then pass "make run"; else fail "make run" "$text"; fi
same "five steps, each once" "1 2 3 4 5" "$(sed -n 's/^\[\([1-5]\)\/5\] .*/\1/p' <<<"$text" | xargs)"
same "everything synced is there after kill -9" 1 \
    "$(grep -c '^\[5/5\] kill -9 .*; 20,000 of 20,000 synced files verified, fsck clean$' <<<"$text")"
check "the mount stays for the newcomer" test -d "$WORK/mnt/demo/synced"
text=$(make --no-print-directory run 2>&1)
same "again: exit 0" 0 $?
same "again: the mount is reused" 1 "$(grep -c '^\[3/5\] mount .* reused$' <<<"$text")"
check "umount" "$PANDO" umount "$PANDO_MNT"
check "fsck" clean "$WORK/data"
