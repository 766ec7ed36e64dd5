# Leaving in any order: whoever comes next finds the folder free, or is told who still has it.
. "$(dirname "$0")/lib.sh"
require
TEST=leave
cd "$WORK" || exit 1

up ./data ./a
for n in $(seq 5); do
    echo "$n" >a/x
    umount ./a || die "umount(8)"
    text=$("$PANDO" mount ./data ./a 2>&1) || { fail "a mount right after umount(8)" "$text"; break; }
    [ "$(cat a/x)" = "$n" ] || { fail "with what was written" "$(cat a/x)"; break; }
done
[ $failed = 0 ] && pass "5 mounts, each right after umount(8)"
down ./a
check "pando umount waits until the folder is free" clean ./data

up ./data ./a
first=$SERVER
check "a second mount attaches" "$PANDO" mount ./data ./b
text=$("$PANDO" umount ./a 2>&1)
same "the first one leaves" 0 $?
same "and says who goes on" "pid $first goes on serving for 1 client" "$text"
same "and serves" x "$(ls b)"
text=$("$PANDO" umount ./b 2>&1)
same "the last one leaves" 0 $?
same "without a word" "" "$text"
check "and the folder is free at once" clean ./data

up ./data ./a
check "attach again" "$PANDO" mount ./data ./b
lines() { grep -c 'connection ended' data/log/pando.log; }
before=$(lines)
for n in 1 2 3; do "$PANDO" status --cluster ./data >/dev/null; done
same "questions leave no line in the log" "$before" "$(lines)"
down ./b
for n in $(seq 100); do [ "$(lines)" -gt "$before" ] && break; sleep 0.05; done
same "a client that leaves does" $((before + 1)) "$(lines)"
same "an attached mount that leaves first waits for nobody" x "$(ls a)"
text=$(cd a && "$PANDO" umount . 2>&1)
same "umount from inside exits 5" 5 $?
same "and names the shell, not itself" 0 "$(grep -c 'pando (pid' <<<"$text")"
check "umount by the process that stood in it" bash -c 'cd a && exec "$0" umount .' "$PANDO"
check "free at the end" clean ./data

up ./data ./a
kill9 "$SERVER"
check "mount after a kill" "$PANDO" mount ./data ./a
down ./a
same "no link is left behind" "" "$(find /run/pando -lname "$PWD/data/pando.sock" 2>/dev/null)"
