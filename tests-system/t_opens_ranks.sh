# Directories are removed, and given from rank to rank, while programs have files in them open and locked, unlink them, and wait for locks; ranks and
# the server die in between; a rank that has open files goes. Files that are open and locked are renamed from rank to rank. In the end no rank has any open.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require setfattr flock python3
TEST=opens_ranks
cd "$WORK" || exit 1

# Below the ports that the system gives to clients.
port=$((20000 + RANDOM % 12000))
serve_ranks 3 2 --metrics 127.0.0.1:$port
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"

mkdir -p mnt2 && "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt2" 2>err || die "a second mount: $(cat err)"
# A directory whose content another rank has than its name is removed, whatever is open that had its name there.
unnamed() { pinned e 1 && echo text >mnt/e/file && exec 8<mnt/e/file && rm mnt/e/file || die "an open file without a name"; }
unnamed
check "a directory of two ranks is removed" rmdir mnt/e
check "and what was in it is read" [ "$(cat <&8)" = text ]
exec 8<&-
unnamed
check "rank 1 dies with one" harm 1 crash
# Until the clients of its former life have said what they have open its directories do not move, nor are they removed (EBUSY).
check "it is removed after that" within rmdir mnt/e
check "and what was in it is read after that" [ "$(cat <&8)" = text ]
exec 8<&-

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
serve "$WORK/data" --ranks 3 --conf "$WORK/pando.toml" --metrics 127.0.0.1:$port 7>&- 8>&- 9>&-
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
# A name shows no opens, and these files have been at two ranks in several lives: what one of them did not hear closed it has for ever.
check "nor is anything open" within counts pando_mds_busy_files 0
check "nor any lock there" within counts pando_mds_locks 0

# By renames: from one rank's directory to the other's, and back.
check "two ranks again" ask fs set pandofs max_mds 2
check "both serve" within serve_all 2
pinned a 0
pinned b 1
echo one >mnt/a/x && echo other >mnt/b/y || die "files of two ranks"
free() { flock -n "mnt2/$1" true; }
locked() { ! free "$1"; }
number() { stat -c %i "$1"; }
INO=$(number mnt/a/x)
exec 7<>mnt/a/x && flock -n 7 || die "opened and locked"
# Where it answers EXDEV mv would copy.
renamed() { timeout 60 python3 -c 'import os, sys; os.rename(sys.argv[1], sys.argv[2])' "$@"; }
check "an open file is renamed to the other rank" renamed mnt/a/x mnt/b/x
same "it is the same" "$INO" "$(number mnt/b/x)"
check "it is read" [ "$(cat <&7)" = one ]
check "and written" bash -c 'echo two >&7'
check "and synced" python3 -c 'import os; os.fsync(7)'
same "the other mount reads that" two "$(tail -n 1 mnt2/b/x)"
check "it is locked" locked b/x
check "rank 1 dies" harm 1 crash
check "it is locked then" locked b/x
check "rank 0 dies" harm 0 crash
check "a write after that" bash -c 'echo three >&7'
# The rank that died may take it for open by an answer of before, until the mount has said more.
check "back" within renamed mnt/b/x mnt/a/x
same "it is the same yet" "$INO" "$(number mnt/a/x)"
check "with its lock" locked a/x
exec 8<mnt/b/y
INO=$(number mnt/b/y)
check "an open file gets a second name" ln mnt/b/y mnt/a/z
same "of the same" "$INO" "$(number mnt/a/z)"
check "its names go" rm mnt/b/y mnt/a/z
check "it is open" [ "$(cat <&8)" = other ]
INO=$(number mnt/a/x)
while [ ! -e stop ]; do echo again >&7; done &
WRITER=$!
for n in $(seq 5); do
    check "$n: it is renamed while it is written" renamed mnt/a/x mnt/b/x
    check "$n: and back" renamed mnt/b/x mnt/a/x
done
touch stop && wait $WRITER
same "it is the same in the end" "$INO" "$(number mnt/a/x)"
same "and has what was written" again "$(tail -n 1 mnt2/a/x)"
check "its name goes" rm mnt2/a/x
check "what is open stays" bash -c 'echo end >&7'
# Neither has a name any more. Had a rank forgotten one, or two of them the same one, the end below would say nothing.
check "two files are open" within counts pando_mds_busy_files 2
exec 7>&- 8<&-
check "nothing is open" within counts pando_mds_busy_files 0
check "nothing is locked, either" within counts pando_mds_locks 0
for each in mnt mnt2; do
    "$PANDO" umount "$WORK/$each" >err 2>&1 || die "umount: $(cat err)"
done
kill "$SERVER" && wait_gone "$SERVER"
check "fsck" clean "$WORK/data"
