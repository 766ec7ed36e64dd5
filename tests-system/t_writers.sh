# Two that write one SQLite database by turns, each on a mount of its own, while the server is killed and started again every three
# seconds: what either was told is committed is there, and neither hears of an error.
. "$(dirname "$0")/lib.sh"
require python3
TEST=writers
cd "$WORK" || exit 1

"$PANDO" -q format ./data >/dev/null 2>&1 || die "format"
serve ./data
for name in a b; do "$PANDO" -q mount unix:./data/pando.sock ./$name 2>err || die "mount: $(cat err)"; done
python3 -c 'import sqlite3; sqlite3.connect("a/t.db").execute("create table t(a integer primary key, b text)")' || die "create"
KILLS=3
killed ./data
for name in a b; do
    python3 "$HERE/writers.py" write $name/t.db $name 16 $name.log &
    writers+=($!)
done
# Something else beside them, so that the mounts are busy.
cp -r "$HERE/../crates" a/copy || fail "cp beside" "exit $?"
wait "${writers[@]}"
touch enough
wait "$KILLER_PID"
SERVER=$(tail -n 1 kills)
check "killed several times" test "$(wc -l <kills)" -ge 4
for name in a b; do check "what was committed is there ($name)" python3 "$HERE/writers.py" judge $name/t.db a.log b.log; done
for name in a b; do "$PANDO" -q umount ./$name 2>err || die "umount: $(cat err)"; done
kill "$SERVER" && wait_gone "$SERVER"
check "fsck" clean ./data
