# Lives of a rank end one after the other while its server lives: failed by command, crashed, hanging. Programs on a mount see a pause and no
# error, everything that was synced is there, and the folder is clean.
. "$(dirname "$0")/lib.sh"
require git
TEST=failover
ROUNDS=${PANDO_FAILOVERS:-12}
cd "$WORK" || exit 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

printf 'mds_beacon_interval = 1\nmds_beacon_grace = 3\n' >pando.toml
"$PANDO" -q format ./data >/dev/null 2>&1 || die "format"
serve ./data --ranks 2 --conf "$WORK/pando.toml"
ask() { "$PANDO" "$@" --cluster ./data; }
"$PANDO" -q mount unix:./data/pando.sock ./mnt 2>err || die "mount: $(cat err)"
mkdir mnt/synced && git init -q --bare mnt/bare.git && git clone -q mnt/bare.git seed 2>/dev/null &&
    (cd seed && seq 2000 | split -l 20 - part. && git add . && git commit -q -m base && git push -q origin HEAD:main) || die "git"

: >ack.1 >ack.2
writers=()
for writer in 1 2; do
    "$PANDO" load write --first $((writer * 1000000)) --bytes $((writer * 50000)) mnt/synced ack.$writer 2>ack.$writer.err &
    writers+=($!)
done
# Clones, changes and pushes over and over; a line for each turn, with its time.
clones() {
    local n=0
    while [ ! -e stop ]; do
        n=$((n + 1))
        rm -rf mnt/clone && git clone -q -b main mnt/bare.git mnt/clone &&
            (cd mnt/clone && echo $n >"new.$n" && git add . && git commit -q -m "turn $n" && git push -q origin HEAD:main) ||
            { echo "turn $n failed" && return 1; }
        echo "$n ${EPOCHREALTIME/[.,]/}" >>turns
    done
}
: >turns
clones >clones.err 2>&1 &
cloner=$!
pids+=("${writers[@]}" $cloner)

# life: which life of the rank serves; nothing while none does.
life() { ask fs get pandofs 2>/dev/null | sed -n 's/.* state up:active incarnation \([0-9]*\)]$/\1/p'; }
# later LIFE: a later one serves, within a minute.
later() {
    local n now
    for n in $(seq 600); do
        now=$(life)
        [ -n "$now" ] && [ "$now" -gt "$1" ] && return
        sleep 0.1
    done
    ask fs dump
    return 1
}
# goes NAME: both writers and the clones get on.
goes() {
    local n each before
    for each in ack.1 ack.2 turns; do
        before=$(wc -l <$each)
        for n in $(seq 600); do
            [ "$(wc -l <$each)" -gt "$before" ] && continue 2
            sleep 0.1
        done
        fail "$1: all go on" "$each does not: $(cat ack.1.err ack.2.err clones.err)"
        return
    done
    pass "$1: all go on"
}
standby() { ask fs status | sed -n '/^STANDBY MDS/,/^MDS version/p' | sed '1d;$d' | tr -d ' '; }

goes "before"
check "one slot serves, the other stands by" [ -n "$(standby)" ]
for round in $(seq "$ROUNDS"); do
    before=$(life)
    case $((round % 3)) in
        1) what="mds fail 0" ;;
        2) what="tell mds.0 crash" ;;
        0) what="tell mds.0 hang" ;;
    esac
    # shellcheck disable=SC2086
    check "round $round: $what" ask $what
    check "round $round: the next life serves" later "$before"
    goes "round $round"
done
touch stop
wait $cloner
same "nothing of git failed" "0 " "$? $(cat clones.err)"
for writer in "${writers[@]}"; do
    check "a writer was never told of an error" kill -0 "$writer"
    kill -9 "$writer"
    wait "$writer" 2>/dev/null
done
same "nor did it say so" "" "$(cat ack.1.err ack.2.err)"
for writer in 1 2; do check "every synced file of $writer ($(wc -l <ack.$writer))" "$PANDO" load verify mnt/synced ack.$writer; done
same "every turn of git arrived" "$(($(wc -l <turns) + 1))" "$(git --git-dir=mnt/bare.git log --oneline main | wc -l)"
check "git: whole" git --git-dir=mnt/bare.git fsck --strict
check "no pause is longer than 60 s" awk 'last && $2 - last > 60000000 { print; bad = 1 } { last = $2 } END { exit bad }' turns
hung=$((ROUNDS / 3))
same "lives that hung were left behind" "$hung" "$(grep -c 'threads of a life do not come back' data/log/pando.log)"
# Of the disk, which others fill, something may be.
same "nothing is wrong with the rank in the end" "" "$(ask health detail | grep -E 'MDS_|FS_')"

# What an operator has failed stays so until he says otherwise; what is started meanwhile waits.
check "failed" ask fs fail pandofs
same "which is told" "HEALTH_ERR" "$(ask health | cut -d' ' -f1)"
(cat mnt/clone/new.1 >read 2>&1) &
reader=$!
check "joinable" ask fs joinable pandofs
wait $reader
same "and who waited has its answer" 1 "$(cat read)"
"$PANDO" -q umount ./mnt 2>err || die "umount: $(cat err)"
kill -TERM "$SERVER" && wait_gone "$SERVER"
check "fsck" clean ./data

# A mount's own rank is no operator's to end.
up "$WORK/data" "$WORK/mnt"
text=$(ask mds fail 0 2>&1)
same "not of a mount" "5 pando mds: ./data: a mount runs in this process: its rank ends with it
  do: \`pando serve\`" "$? $text"
check "its map is shown" ask fs status
down "$WORK/mnt"
check "fsck after it" clean ./data
