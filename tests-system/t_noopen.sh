# A mount without opens beside one with them: each sees what the other writes, what it removes itself lives while it is
# open, and what the other removes is gone.
. "$(dirname "$0")/lib.sh"
TEST=noopen
cd "$WORK" || exit 1

check "it wants local locks, and says so" bash -c \
    "! '$PANDO' mount -o noopen ./data ./a 2>err && grep -q 'noopen: only with locks=local' err"

"$PANDO" format ./data >out 2>&1 || die "$(cat out)"
serve ./data
server=$SERVER
up unix:./data/pando.sock ./a -o noopen,locks=local
up unix:./data/pando.sock ./b
text=$(setpriv --reuid 65534 --clear-groups "$PANDO" mount -o noopen,locks=local unix:./data/pando.sock ./c 2>&1)
same "others than root may not have it of a server" 4 $?
check "in words" grep -q "only root may have it" <<<"$text"

echo one >a/f
same "it reads what it wrote" one "$(cat a/f)"
same "and so does the other" one "$(cat b/f)"
exec 4<a/f
for n in $(seq 200); do
    # Of one length, so that only the time tells.
    printf '%04d\n' "$n" >b/f
    found=$(cat a/f)
    [ "$found" = "$(printf '%04d' "$n")" ] || { fail "what the other writes is read" "$n: $found"; break; }
done
[ $failed = 0 ] && pass "200 times what the other wrote was read"
for n in $(seq 100); do
    printf '%04d\n' "$n" >a/f
    found=$(cat b/f)
    [ "$found" = "$(printf '%04d' "$n")" ] || { fail "what it writes is read by the other" "$n: $found"; break; }
done
[ $failed = 0 ] && pass "100 times the other read what it wrote"

cat a/f >/dev/null
touch -r b/f stamp
printf '9999\n' >b/f
touch -r stamp b/f
for n in $(seq 200); do [ "$(cat a/f)" = 9999 ] && break; sleep 0.01; done
same "a time that was set back hides a write for moments only" 9999 "$(cat a/f)"
exec 4<&-

same "appends from both are all there" 400 "$( (for n in $(seq 200); do echo a >>a/log; done) & (for n in $(seq 200); do echo b >>b/log; done); wait; wc -l <b/log)"
same "and it sees them" 400 "$(wc -l <a/log)"
echo long >a/cut && : >a/cut
same "cut by opening" 0 "$(stat -c %s b/cut)"

echo kept >a/open
exec 4<a/open
rm a/open
check "removed here it is gone for both" bash -c '[ ! -e a/open ] && [ ! -e b/open ]'
same "and lives while it is open" kept "$(cat <&4)"
exec 4<&-
echo kept >a/open && echo new >a/other
exec 4<a/open
mv a/other a/open
same "replaced likewise" kept "$(cat <&4)"
exec 4<&-
same "with the new one in its place" new "$(cat b/open)"
exec 4<a/open
rm b/open
check "what the other removes is gone" bash -c '! cat <&4 2>err && grep -q "Stale file handle" err'
exec 4<&-
for n in $(seq 20); do
    echo "$n" >a/x && mv b/x b/y || { fail "renames" "$n"; break; }
    [ "$(cat a/y 2>&1)" = "$n" ] && [ ! -e a/x ] && rm a/y || { fail "a rename by the other is seen" "$n"; break; }
done
[ $failed = 0 ] && pass "20 renames by the other were seen at once"

down ./a
down ./b
kill -TERM $server
wait $server
check "fsck" clean ./data
