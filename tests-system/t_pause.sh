# A server that hangs, or is killed and started again, while two mounts work: programs see a pause and no error but that of an fsync of a file whose bytes
# died with the server and that both write, nothing happens twice, and what was answered before its disk had it is there afterwards.
. "$(dirname "$0")/lib.sh"
require
TEST=pause
cd "$WORK" || exit 1

"$PANDO" format ./data >/dev/null || die "format"
serve ./data
for mount in a b; do "$PANDO" mount unix:./data/pando.sock ./$mount >/dev/null || die "mount"; done
mkdir a/both a/of-a a/of-b
: >a/both/log
sync a/both/log

# synced NAME STEP FILE: EIO says, once, that a server died with bytes of the file, which others have changed since.
synced() {
    sync "$3" 2>"$1.sync" && return
    grep -q 'Input/output error' "$1.sync" && sync "$3" && echo "$1 $2" >>told
}
# works MOUNT NAME DIR: until told; every step fails if it is done twice, and is noted when it is done. The last number is in NAME.done.
works() {
    local at=$1/$3 n=0
    while [ ! -e stop ]; do
        n=$((n + 1))
        # File data is there for certain once it was synced, as on a local disk; names come back without.
        echo "$2 $n" >"$at/$2.$n" && sync "$at/$2.$n" &&
            mkdir "$at/$2.dir.$n" &&
            ln "$at/$2.$n" "$at/$2.dir.$n/link" &&
            mv -n "$at/$2.$n" "$at/$2.dir.$n/file" && [ ! -e "$at/$2.$n" ] &&
            rm "$at/$2.dir.$n/link" &&
            echo "$2 $n" >>"$1/both/log" && synced "$2" $n "$1/both/log" &&
            { [ $((n % 3)) != 0 ] || { rm "$at/$2.dir.$n/file" && rmdir "$at/$2.dir.$n"; }; } ||
            { echo "$2: step $n failed" && return 1; }
        echo "$n ${EPOCHREALTIME/[.,]/}"
    done >"$2.done" 2>"$2.err"
}
workers=()
# Each mount in a directory of its own, and both in one.
for each in "a a1 of-a" "b b1 of-b" "a a2 both" "b b2 both"; do
    # shellcheck disable=SC2086
    works $each &
    workers+=($!)
done
pids+=("${workers[@]}")

steps() { tail -q -n 1 ./*.done | awk '{ sum += $1 } END { print sum + 0 }'; }
# goes NAME: all four get on.
goes() {
    local n each before
    for each in a1 b1 a2 b2; do
        before=$(wc -l <$each.done)
        for n in $(seq 200); do
            [ "$(wc -l <$each.done)" -gt $((before + 1)) ] && continue 2
            sleep 0.05
        done
        fail "$1: all go on" "$each does not: $(cat $each.err)"
        return
    done
    pass "$1: all go on"
}
# works_on: until forty more steps are done, by whomever.
works_on() {
    local n before
    before=$(steps)
    for n in $(seq 600); do
        [ "$(steps)" -ge $((before + 40)) ] && return
        sleep 0.05
    done
    fail "all go on" "$before steps, and then $(steps)"
}
for each in a1 b1 a2 b2; do until [ -e $each.done ]; do sleep 0.05; done; done
works_on
goes "before"
for seconds in 3 12; do
    kill -STOP $SERVER
    let_pass $seconds "less than a lease, and more"
    kill -CONT $SERVER
    goes "after $seconds s without a server"
    works_on
done
for round in 1 2; do
    echo "${EPOCHREALTIME/[.,]/}" >>kills
    kill9 $SERVER
    serve ./data
    echo "${EPOCHREALTIME/[.,]/}" >>kills
    goes "after a server that was killed ($round)"
    works_on
done
touch stop
for worker in "${workers[@]}"; do wait "$worker"; done
same "nobody met an error" "" "$(cat ./*.err)"
# The log of each mount, for each server that was killed.
check "and who was told of lost bytes was told once" test "$(cat told 2>/dev/null | wc -l)" -le 8
# Longer than the server was away: until connections are made again, and what waits at the rank has run out.
check "no pause is longer than 20 s" awk '
    last[FILENAME] && $2 - last[FILENAME] > 20000000 { print FILENAME, $0; bad = 1 } { last[FILENAME] = $2 } END { exit bad }' \
    a1.done b1.done a2.done b2.done

# Lines of the log, which both write, that were written before the server was killed and synced after it was there again may read as
# zeros: of steps in which that happened only counts that nothing is there twice.
for each in a1 b1 a2 b2; do
    awk -v who=$each 'NR == FNR { at[NR] = $1; next }
        { for (n in at) if (at[n] >= before && at[n] <= $2) { print who, $1; break } before = $2 }' kills $each.done
done | sort >spans
for each in a1 b1 a2 b2; do
    last=$(tail -n 1 $each.done | cut -d' ' -f1)
    seq "$last" | sed "s/^/$each /"
done | sort >wanted.log
for each in a b; do
    tr -d '\0' <$each/both/log | grep . | sort >seen.log
    same "no line was appended twice, as $each sees it" "" "$(uniq -d seen.log | head -n 3)"
    same "every line was appended, as $each sees it" "" "$(comm -3 wanted.log seen.log | tr -d '\t' | comm -23 - spans | head -n 3)"
done
awk '$2 % 3 { print $1 ".dir." $2 "/file: " $0 }' wanted.log | sort >wanted.files
# seen MOUNT: what is in all the files, and everything else there is.
seen() {
    local dir
    for dir in of-a of-b both; do
        (cd "$1/$dir" && find . -mindepth 1 ! -type d ! -name log -printf '%P\n' | while read -r file; do echo "$file: $(tr -d '\0' <"$file")"; done)
    done | sort
}
for each in a b; do
    same "every file is there once, with its content, as $each sees it" "" "$(seen $each | diff wanted.files - | head -n 3)"
    same "and every directory, as $each sees it" "$(wc -l <wanted.files)" "$(find $each -mindepth 2 -type d | wc -l)"
done
echo "$(steps) steps of seven operations"
for mount in a b; do down ./$mount; done
kill -TERM $SERVER
wait $SERVER
check "fsck" clean ./data
