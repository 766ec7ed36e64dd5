# Directories are given from rank to rank while programs have files in them open and locked, unlink them, and wait for locks; ranks and the server die
# in between; a rank that has open files goes.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require setfattr flock
TEST=opens_ranks
cd "$WORK" || exit 1

serve_ranks 3 2
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"

mkdir -p mnt2 && "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt2" 2>err || die "a second mount: $(cat err)"
pinned d 0
mkdir mnt/d/sub && echo before >mnt/d/sub/file && echo gone >mnt/d/sub/gone && echo locked >mnt/d/lock || die "files"

# After a rank's death it knows of what is open only the numbers until somebody asks for it: until then nothing moves (EBUSY).
give() { within given "$1" && within owned /d "$1"; }
given() { stat -L /proc/self/fd/[789] mnt/d/sub/file mnt/d/lock >/dev/null 2>&1; setfattr -n ceph.dir.pin -v "$1" mnt/d 2>/dev/null; }
# Who else could have the lock.
free() { flock -n mnt2/d/lock true; }
locked() { ! free; }
exec 7<>mnt/d/sub/file 8<mnt/d/sub/gone 9>mnt/d/lock || die "opened"
check "a lock" flock -n 9
check "another mount sees it" locked
check "what is open moves" give 1
check "it is read" [ "$(cat <&7)" = before ]
check "and written" bash -c 'echo after >&7'
check "the other mount reads that" [ "$(tail -n 1 mnt2/d/sub/file)" = after ]
check "the lock has moved" locked
check "a name goes" rm mnt2/d/sub/gone
check "its file is open" [ "$(cat <&8)" = gone ]
check "back" give 0
check "the lock is there" locked
check "what has no name stays open" bash -c 'test "$(stat -L -c %h /proc/self/fd/8)" = 0'
for n in $(seq 6); do
    rank=$((n % 2))
    check "$n: to rank $rank" give $rank
    check "$n: rank $rank dies" harm $rank crash
    check "$n: the lock is there" locked
    check "$n: a write" bash -c "echo round $n >&7"
done
same "all was written" "round 6" "$(tail -n 1 mnt2/d/sub/file)"
check "to rank 1" give 1
kill -9 "$SERVER" && wait_gone "$SERVER"
serve "$WORK/data" --ranks 3 --conf "$WORK/pando.toml" 7>&- 8>&- 9>&-
check "both serve again" within serve_all 2
check "the lock is there after that" locked
check "the file, too" bash -c 'echo last >&7'
same "and what was written" last "$(tail -n 1 mnt2/d/sub/file)"
# Somebody waits for the lock while it moves.
flock mnt2/d/lock echo got >waited 9>&- &
WAITER=$!
check "somebody waits, and it moves" give 0
check "he waits there" [ ! -s waited ]
exec 9>&-
check "he gets it" wait $WAITER
same "he got it" got "$(cat waited)"
check "to rank 1 again" give 1
exec 9>mnt/d/lock && flock -n 9 || die "locked"
check "rank 1 is not wanted any more" ask fs set pandofs max_mds 1
check "it goes, whatever is open" within serve_all 1
check "with the lock" locked
check "and the file" bash -c 'echo end >&7'
same "which has it" end "$(tail -n 1 mnt2/d/sub/file)"
exec 7>&- 8<&- 9>&-
check "nothing is locked" within free
for each in mnt mnt2; do
    "$PANDO" umount "$WORK/$each" >err 2>&1 || die "umount: $(cat err)"
done
kill "$SERVER" && wait_gone "$SERVER"
check "fsck" clean "$WORK/data"
