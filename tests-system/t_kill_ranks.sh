# Four ranks of which random ones end (failed, crashed, hanging) while a writer in a directory of each syncs files: every acknowledged file is there, and
# while one rank has no life those of others go on. Then the whole process is killed over and over while clones whose objects are hard links are made,
# changed, pushed and removed: after each kill the folder is clean, programs see no error, and the repository is whole.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require git setfattr
TEST=kill_ranks
HARMS=${PANDO_HARMS:-6}
KILLED=${PANDO_KILLS:-3}
echo "PANDO_SEED=$SEED"
cd "$WORK" || exit 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

serve_ranks 5 4
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"
writers=()
for rank in 0 1 2 3; do
    pinned "r$rank" $rank
    : >ack.$rank
    "$PANDO" load write --first $(((rank + 1) * 1000000)) --bytes $((rank * 40000 + 3000)) mnt/r$rank ack.$rank 2>ack.$rank.err &
    writers+=($!)
done
# Clones with hard links over and over, from rank 1 to rank 1 and to rank 2; a line for each turn.
pinned git 1
pinned other 2
git init -q --bare -b main mnt/git/bare.git && git clone -q mnt/git/bare.git seed 2>/dev/null &&
    (cd seed && git checkout -q -b main && seq 400 | split -l 20 - part. && git add . && git commit -q -m base && git push -q origin HEAD:main) || die "git"
clones() {
    local n=0 to
    while [ ! -e stop ]; do
        n=$((n + 1))
        to=git
        [ $((n % 2)) = 0 ] || to=other
        rm -rf mnt/$to/clone && git clone -q --local -b main mnt/git/bare.git mnt/$to/clone &&
            (cd mnt/$to/clone && echo $n >"new.$n" && git add . && git commit -q -m "turn $n" && git push -q origin HEAD:main) ||
            { echo "turn $n failed" && return 1; }
        echo $n >>turns
    done
}
: >turns
clones >clones.err 2>&1 &
cloner=$!
pids+=("${writers[@]}" $cloner)
longer() { [ "$(wc -l <"$1")" -gt "$2" ]; }
lives() { kill -0 $cloner 2>/dev/null && kill -0 "${writers[@]}" 2>/dev/null; }
goes_on() {
    local each
    for each in ack.{0..3} turns; do
        within longer_or_over $each "$(wc -l <$each)" >out2 2>&1 || { echo "$each does not" && return 1; }
    done
    lives
}
longer_or_over() { longer "$1" "$2" || ! lives; }

kinds=(fail crash fail crash hang)
for round in $(seq "$HARMS"); do
    rank=$((RANDOM % 4)) kind=${kinds[RANDOM % 5]}
    sleep "0.$((RANDOM % 9 + 1))"
    check "round $round: $kind of rank $rank" harm $rank $kind
    check "round $round: all go on" goes_on
done
# What others have is served while rank 1 has no life: none takes over before the file system is joinable again.
gone() { [ -z "$(life "$1")" ]; }
others_serve() {
    local rank
    for rank in 0 2 3; do
        within longer ack.$rank $(($(wc -l <ack.$rank) + 20)) || return
    done
}
for kind in hang crash; do
    check "$kind: nobody may take over" ask fs set pandofs joinable false
    before=$(life 1)
    check "$kind of rank 1" ask tell mds.1 $kind
    check "$kind: others serve" others_serve
    check "$kind: it has failed" within gone 1
    check "$kind: others serve then" others_serve
    same "$kind: and it has no life yet" "" "$(life 1)"
    check "$kind: a standby may take over" ask fs joinable pandofs
    check "$kind: the next life serves" within later 1 "$before"
    check "$kind: all go on" goes_on
done
# A transaction of several ranks that a kill cut in two is no damage: fsck says that it cannot judge before a start has ended it.
whole() {
    "$PANDO" fsck ./data >fsck 2>&1 && return
    tail -n 10 fsck
    grep -q 'transactions of several ranks are under way' fsck
}
for round in $(seq "$KILLED"); do
    sleep "0.$((RANDOM % 9 + 1))"
    kill9 "$SERVER"
    check "kill $round: fsck" whole
    serve "$WORK/data" --ranks 5 --conf "$WORK/pando.toml"
    check "kill $round: all serve again" within serve_all 4
    check "kill $round: all go on" goes_on
done
touch stop
wait $cloner
same "nothing of git failed ($(wc -l <turns) turns)" "0 " "$? $(tail -n 5 clones.err)"
for writer in "${writers[@]}"; do
    check "a writer was never told of an error" kill -0 "$writer"
    kill -9 "$writer"
    wait "$writer" 2>/dev/null
done
same "nor did it say so" "" "$(cat ack.?.err)"
for rank in 0 1 2 3; do check "every synced file of rank $rank ($(wc -l <ack.$rank))" "$PANDO" load verify mnt/r$rank ack.$rank; done
same "every turn of git arrived" "$(($(wc -l <turns) + 1))" "$(git --git-dir=mnt/git/bare.git log --oneline main | wc -l)"
check "git: whole" git --git-dir=mnt/git/bare.git fsck --strict
same "nothing is wrong with the ranks" "" "$(ask health detail | grep -E 'MDS_|FS_')"
"$PANDO" umount "$WORK/mnt" >err 2>&1 || die "umount: $(cat err)"
kill "$SERVER" && wait_gone "$SERVER"
check "fsck at the end" clean "$WORK/data"
