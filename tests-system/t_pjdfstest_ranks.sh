# The POSIX suite `pjdfstest` with four active ranks. Each of its groups works in a directory that is pinned to a random rank; then all groups work in
# a directory below which each new one is placed by hash, so that what a case does crosses ranks. What may fail with one rank (pjdfstest/skip) may fail
# here, and nothing else; what is listed there and passes fails this, too.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require pjdfstest setfattr
TEST=pjdfstest_ranks
echo "PANDO_SEED=$SEED"

serve_ranks 4 4
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>"$WORK/err" || die "mount: $(cat "$WORK/err")"
sed 's/^allow_remount = true/allow_remount = false/' "$HERE/pjdfstest/pjdfstest.toml" >"$WORK/pjd.toml"
suite() { "$TOOLS/bin/pjdfstest" -c "$WORK/pjd.toml" -s /dev/shm -p "$@"; }

# judge NAME FILE: each case of a run.
judge() {
    local name state listed
    while read -r name state; do
        listed=$(grep -c "^$name[[:space:]]" "$HERE/pjdfstest/skip")
        # Those remount; t_pjdfstest has them.
        [[ $name:$state == *::erofs_*:skipped || $name:$state == *::erofs:skipped ]] && continue
        case $state:$listed in
            ok:0 | FAILED:1 | skipped:1) passed=$((passed + 1)) ;;
            ok:1) fail "$1 $name" "passes, but is listed in pjdfstest/skip" ;;
            *) fail "$1 $name" "$state: $(grep -A 3 "^$name " "$2" | tail -n +2 | tr -s '\n\t ' ' ')" ;;
        esac
    done < <(sed -n 's/^\([a-z_0-9]*::[a-z_0-9:]*\)[[:space:]]\{1,\}\([A-Za-z]*\).*$/\1 \2/p' "$2")
}
total=0
count() { total=$((total + $(sed -n 's/^Summary:.* \([0-9]*\) total.*/\1/p' "$1"))); }

groups=(chflags chmod chown errors ftruncate link mkdir mkfifo mknod nfsv4acl open posix_fallocate rename rmdir symlink truncate unlink utimensat)
for group in "${groups[@]}"; do
    rank=$((RANDOM % 4))
    pinned "$group" $rank
    suite "$WORK/mnt/$group" "tests::$group::" >"$WORK/pjd.$group" 2>&1
    grep -q '^Summary:' "$WORK/pjd.$group" || fail "$group at $rank" "no summary: $(tail -n 3 "$WORK/pjd.$group")"
    judge "$group at rank $rank:" "$WORK/pjd.$group"
    count "$WORK/pjd.$group"
done
[ "$total" -ge 398 ] || fail "the whole suite ran" "$total of 398"

mkdir "$WORK/mnt/placed" && setfattr -n pando.dir.placement -v hash "$WORK/mnt/placed" || die "placement"
suite "$WORK/mnt/placed" >"$WORK/pjd" 2>&1
grep '^Summary:' "$WORK/pjd" || die "no summary: $(tail -n 3 "$WORK/pjd")"
judge "placed by hash:" "$WORK/pjd"
total=0
count "$WORK/pjd"
[ "$total" -ge 398 ] || fail "the whole suite ran" "$total of 398"

"$PANDO" umount "$WORK/mnt" >"$WORK/err" 2>&1 || die "umount: $(cat "$WORK/err")"
kill "$SERVER" && wait_gone "$SERVER"
check "fsck afterwards" clean "$WORK/data"
