# Two mounts of one server, and a third over TCP: each sees what the others do, at once; locks exclude across
# them; the server goes on when one client dies and when the first mount is unmounted.
. "$(dirname "$0")/lib.sh"
require flock
TEST=two
cd "$WORK" || exit 1

up ./data ./a
first=$SERVER
echo alone >a/before
text=$("$PANDO" mount ./data ./b 2>&1) || die "$text"
same "the second mount attaches" 0 "$(grep -c created <<<"$text")"
same "and sees what was there" alone "$(cat b/before)"
for n in $(seq 50); do
    echo "$n" >a/x$n
    [ "$(cat b/x$n 2>&1)" = "$n" ] || { fail "a create is seen" "$n"; break; }
    mv b/x$n b/y$n
    [ -e a/y$n ] && [ ! -e a/x$n ] || { fail "a rename is seen" "$n"; break; }
    echo more >>a/y$n
    [ "$(wc -l <b/y$n)" = 2 ] || { fail "an append is seen" "$n: $(cat b/y$n)"; break; }
    rm b/y$n
    [ ! -e a/y$n ] || { fail "an unlink is seen" "$n"; break; }
done
[ $failed = 0 ] && pass "50 rounds of create, rename, append, unlink seen at once"
exec 4<>a/open
echo one >&4
same "an open file: written here, read there" one "$(cat b/open)"
echo two >b/open2 && mv b/open2 b/open
same "and the old one stays open here" one "$(cat /proc/$$/fd/4 | head -n 1)"
exec 4>&-
mkdir a/dir && chmod 700 a/dir
same "modes" 700 "$(stat -c %a b/dir)"
exec 5>a/lock && flock 5
check "flock excludes across mounts" bash -c '! flock -n b/lock true'
exec 5>&-
check "and is free again" flock -n b/lock true
same "appends from both are all there" 400 "$( (for n in $(seq 200); do echo a >>a/log; done) & (for n in $(seq 200); do echo b >>b/log; done); wait; wc -l <b/log)"
same "both are clients" 2 "$("$PANDO" client ls --cluster ./data | tail -n +2 | wc -l)"

"$PANDO" umount ./a >/dev/null 2>&1
check "the server outlives its own mount" bash -c 'test -e b/before && echo z >b/after'
check "and can be joined again" "$PANDO" mount ./data ./a
same "with everything" z "$(cat a/after)"
down ./a
down ./b
for n in $(seq 600); do [ -d "/proc/$first" ] || break; sleep 0.05; done
same "it ends when the last client left" "" "$(ls -d "/proc/$first" 2>/dev/null)"
check "fsck" clean ./data

port=$((20000 + RANDOM % 20000))
"$PANDO" serve ./data --listen 127.0.0.1:$port --insecure >serve.out 2>&1 &
server=$!
pids+=($server)
until "$PANDO" status --cluster ./data >/dev/null 2>&1 || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
check "another folder" "$PANDO" format ./other
text=$("$PANDO" serve ./other --listen 127.0.0.1:$port --insecure 2>&1)
same "a place that somebody listens at exits 5" "5 1" "$? $(grep -c "127.0.0.1:$port: .*in use" <<<"$text")"
check "a mount through the socket" "$PANDO" mount unix:./data/pando.sock ./a
check "a mount over TCP" "$PANDO" mount 127.0.0.1:$port ./b
echo tcp >b/t && sync b/t
same "they see each other" tcp "$(cat a/t)"
# The server dies and comes back: clients go on.
kill9 $server
wait $server 2>/dev/null
"$PANDO" serve ./data --listen 127.0.0.1:$port --insecure >>serve.out 2>&1 &
server=$!
pids+=($server)
same "after a restart a remote client goes on" tcp "$(timeout 60 cat b/t)"
check "and writes" timeout 60 bash -c 'echo again >b/t && test "$(cat a/t)" = again'
down ./a
down ./b
kill -TERM $server
wait $server
same "serve ends in order on SIGTERM" 0 $?
check "fsck at the end" clean ./data
