# Two ranks carry parts of one tree: directories are pinned, programs on a mount write to both while lives of either end, then the whole process,
# and see no error; everything synced is there, and the folder is clean. A rank that is not wanted any more hands over what it has.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require git setfattr getfattr
TEST=ranks
ROUNDS=${PANDO_FAILOVERS:-6}
cd "$WORK" || exit 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

serve_ranks 3 1
both() { serve_all 2; }
alone() { [ "$(ask fs get pandofs | sed -n 's/^in\t//p')" = 0 ]; }

check "two are wanted" ask fs set pandofs max_mds 2
check "both serve" within both
"$PANDO" -q mount unix:./data/pando.sock ./mnt 2>err || die "mount: $(cat err)"
mkdir mnt/zero mnt/one mnt/git
check "a pin" setfattr -n ceph.dir.pin -v 1 mnt/one
check "another" setfattr -n ceph.dir.pin -v 1 mnt/git
same "it reads back" 1 "$(getfattr --only-values -n ceph.dir.pin mnt/one 2>err)"
same "whose is what" "/ 0 root
/git 1 pin
/one 1 pin" "$(ask subtree ls | awk 'NR > 1 { print $1, $2, $3 }' | sort)"
cp "$PANDO" ./pando
as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups env HOME=/nonexistent ./pando "$@" --cluster unix:./data/pando.sock >out 2>&1; }
same "paths are not for everybody" "4 4 0" "$(as_nobody subtree ls; a=$?; as_nobody top --by subtree; b=$?; as_nobody fs status; echo "$a $b $?")"

: >ack.zero >ack.one
writers=()
for dir in zero one; do
    first=$((${#writers[@]} * 1000000 + 1000000))
    "$PANDO" load write --first $first --bytes $((first / 20)) mnt/$dir ack.$dir 2>ack.$dir.err &
    writers+=($!)
done
# Without hard links: a file with several names is rank 0's.
git init -q --bare mnt/git/bare.git && git --git-dir=mnt/git/bare.git config core.createObject rename && git clone -q mnt/git/bare.git seed 2>/dev/null &&
    (cd seed && seq 2000 | split -l 20 - part. && git add . && git commit -q -m base && git push -q origin HEAD:main) || die "git"
# Clones, changes and pushes over and over, inside what is rank 1's; a line for each turn.
clones() {
    local n=0
    while [ ! -e stop ]; do
        n=$((n + 1))
        rm -rf mnt/git/clone && git clone -q --no-hardlinks -c core.createObject=rename -b main mnt/git/bare.git mnt/git/clone &&
            (cd mnt/git/clone && echo $n >"new.$n" && git add . && git commit -q -m "turn $n" && git push -q origin HEAD:main) ||
            { echo "turn $n failed" && return 1; }
        echo $n >>turns
    done
}
: >turns
clones >clones.err 2>&1 &
cloner=$!
pids+=("${writers[@]}" $cloner)
longer() { [ "$(wc -l <"$1")" -gt "$2" ]; }
# goes NAME: both writers and the clones get on.
goes() {
    local each
    for each in ack.zero ack.one turns; do
        check "$1: $each goes on" within longer $each "$(wc -l <$each)"
    done
}

goes "before"
for round in $(seq "$ROUNDS"); do
    rank=$((round % 2))
    before=$(life $rank)
    case $((round % 3)) in
        1) what="mds fail $rank" ;;
        2) what="tell mds.$rank crash" ;;
        0) what="tell mds.$rank hang" ;;
    esac
    # shellcheck disable=SC2086
    check "round $round: $what" ask $what
    check "round $round: the next life serves" within later $rank "$before"
    goes "round $round"
done
for round in 1 2; do
    kill9 "$SERVER"
    serve ./data --ranks 3 --conf "$WORK/pando.toml"
    check "killed $round: both serve again" within both
    goes "killed $round"
done
touch stop
wait $cloner
same "nothing of git failed" "0 " "$? $(cat clones.err)"
for writer in "${writers[@]}"; do
    check "a writer was never told of an error" kill -0 "$writer"
    kill -9 "$writer"
    wait "$writer" 2>/dev/null
done
same "nor did it say so" "" "$(cat ack.zero.err ack.one.err)"
for dir in zero one; do check "every synced file of $dir ($(wc -l <ack.$dir))" "$PANDO" load verify mnt/$dir ack.$dir; done
check "git: whole" git --git-dir=mnt/git/bare.git fsck --strict
same "nothing is wrong with the ranks" "" "$(ask health detail | grep -E 'MDS_|FS_')"
same "each counts its own" "0 1" "$(ask --format json fs status | tr '{' '\n' | sed -n 's/.*"inos":[1-9][0-9]*.*"rank":\([0-9]\).*/\1/p' | sort | xargs)"
same "and by entry" /one "$(ask subtree ls | awk '$1 == "/one" && $5 + 0 > 0 { print $1 }')"

# What an operator moves.
check "a subtree moves" "$PANDO" subtree move mnt/zero 1
check "and is the other's" within owned /zero 1
check "which has all of it" "$PANDO" load verify mnt/zero ack.zero
same "a rank that is not there" 5 "$("$PANDO" subtree move mnt/zero 7 >out 2>&1; echo $?)"

# A backup of both; a rank that goes.
check "a backup" "$PANDO" backup create ./data ./both.backup
check "one is wanted" ask fs set pandofs max_mds 1
check "it is alone" within alone
same "and has all" "0 0 0 0" "$(ask subtree ls | awk 'NR > 1 { print $2 }' | xargs)"
check "of zero, too" "$PANDO" load verify mnt/zero ack.zero
check "and of one" "$PANDO" load verify mnt/one ack.one
"$PANDO" -q umount ./mnt 2>err || die "umount: $(cat err)"
kill -TERM "$SERVER" && wait_gone "$SERVER"
check "fsck" clean ./data
check "restore" "$PANDO" backup restore ./both.backup ./other
check "fsck of what was restored" clean ./other

# The process of a mount carries one rank.
text=$("$PANDO" mount ./other ./mnt 2>&1)
same "not in a mount's process" "5 pando mount: ./other: its file system has 2 ranks, and the process of a mount carries one
  do: \`pando serve ./other --ranks 2\`, and mount unix:./other/pando.sock" "$? $text"

# Nor is there a backup without what only the journal of a rank without a slot may have.
"$PANDO" serve ./other --ranks 1 >serve.out 2>&1 &
server=$!
pids+=($server)
until "$PANDO" status --cluster ./other >/dev/null 2>&1 || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
text=$("$PANDO" backup create ./other ./less.backup 2>&1)
same "no backup without a rank" "5 1" "$? $(grep -c "rank 1 has no life" <<<"$text")"
same "nor anything of one" "" "$(ls -d ./less.backup* 2>/dev/null)"
kill -TERM $server
wait $server
