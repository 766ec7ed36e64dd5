# The whole POSIX suite `pjdfstest` as root. pjdfstest/skip lists what is expected to fail, each with its
# reason; whatever else fails, fails this. A listed case that passes fails too: the list stays honest.
#
# The suite remounts with mount(8), which looks for its helper in /sbin: we run in a mount namespace of our own
# where an overlay has put it there, so that the machine stays as it is.
if [ -z "${PANDO_NAMESPACE:-}" ] && [ "$(id -u)" = 0 ]; then
    PANDO_NAMESPACE=1 exec unshare -m bash "$0"
fi
. "$(dirname "$0")/lib.sh"
require pjdfstest unshare
TEST=pjdfstest

sbin=$(readlink -f /sbin)
mkdir "$WORK/helper" && ln -s "$PANDO" "$WORK/helper/mount.fuse.pando"
(cd "$WORK" && mount -t overlay overlay -o "lowerdir=helper:$sbin" "$sbin") || die "no overlay over $sbin for the mount helper"
up "$WORK/data" "$WORK/mnt"
mkdir "$WORK/mnt/suite"
suite() { "$TOOLS/bin/pjdfstest" -c "$WORK/pjd.toml" -p "$WORK/mnt/suite" -s /dev/shm "$@"; }
sed 's/^allow_remount = true/allow_remount = false/' "$HERE/pjdfstest/pjdfstest.toml" >"$WORK/pjd.toml"
suite >"$WORK/pjd" 2>&1
code=$?
# The cases that remount run apart: the kernel refuses to make a mount read-only while the RELEASE of an unlinked
# file is on its way to us, and other cases leave such files behind at the moment they end.
cp "$HERE/pjdfstest/pjdfstest.toml" "$WORK/pjd.toml"
for _ in $(seq 100); do mount -i -o remount,ro "$WORK/mnt" 2>/dev/null && break; sleep 0.1; done
mount -i -o remount,rw "$WORK/mnt" || die "remount"
suite erofs >"$WORK/pjd.erofs" 2>&1 || code=$?
skips=$HERE/pjdfstest/skip
while read -r name state; do
    listed=$(grep -c "^$name[[:space:]]" "$skips")
    # Their turn comes in the second run.
    [[ $name:$state == *::erofs_*:skipped ]] && continue
    case $state:$listed in
        ok:0) passed=$((passed + 1)) ;;
        ok:*) fail "$name" "passes, but is listed in pjdfstest/skip" ;;
        *:0) fail "$name" "$state: $(grep -A 3 "^$name " "$WORK/pjd" | tail -n +2 | tr -s '\n\t ' ' ')" ;;
    esac
done < <(sed -n 's/^\([a-z_0-9]*::[a-z_0-9:]*\)[[:space:]]\{1,\}\([A-Za-z]*\).*$/\1 \2/p' "$WORK/pjd" "$WORK/pjd.erofs")
[ "$(grep -c ' ok$' "$WORK/pjd.erofs")" = 13 ] || fail "the 13 cases that remount" "$(grep -v ' ok$' "$WORK/pjd.erofs" | tr -s '\n\t ' ' ')"
summary=$(grep '^Summary:' "$WORK/pjd") || die "no summary (exit $code): $(tail -n 3 "$WORK/pjd")"
echo "$summary"
total=$(sed 's/.* \([0-9]*\) total.*/\1/' <<<"$summary")
[ "$total" -ge 398 ] || fail "the whole suite ran" "$total of 398"
down "$WORK/mnt"
check "fsck afterwards" clean "$WORK/data"
