# The whole POSIX suite `pjdfstest` as root. pjdfstest/skip lists what is expected to fail, each with its
# reason; whatever else fails, fails this. A listed case that passes fails too: the list stays honest.
. "$(dirname "$0")/lib.sh"
require pjdfstest
TEST=pjdfstest

up "$WORK/data" "$WORK/mnt"
mkdir "$WORK/mnt/suite"
"$TOOLS/bin/pjdfstest" -c "$HERE/pjdfstest/pjdfstest.toml" -p "$WORK/mnt/suite" -s /dev/shm >"$WORK/pjd" 2>&1
code=$?
skips=$HERE/pjdfstest/skip
while read -r name state; do
    listed=$(grep -c "^$name[[:space:]]" "$skips")
    case $state:$listed in
        ok:0) passed=$((passed + 1)) ;;
        ok:*) fail "$name" "passes, but is listed in pjdfstest/skip" ;;
        *:0) fail "$name" "$state: $(grep -A 3 "^$name " "$WORK/pjd" | tail -n +2 | tr -s '\n\t ' ' ')" ;;
    esac
done < <(sed -n 's/^\([a-z_0-9]*::[a-z_0-9:]*\)[[:space:]]\{1,\}\([A-Za-z]*\).*$/\1 \2/p' "$WORK/pjd")
summary=$(grep '^Summary:' "$WORK/pjd") || die "no summary (exit $code): $(tail -n 3 "$WORK/pjd")"
echo "$summary"
total=$(sed 's/.* \([0-9]*\) total.*/\1/' <<<"$summary")
[ "$total" -ge 398 ] || fail "the whole suite ran" "$total of 398"
down "$WORK/mnt"
check "fsck afterwards" clean "$WORK/data"
