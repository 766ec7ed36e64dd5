# What becomes of a mount's session: in its log, in its server's, and in `pando status`; who is killed while the server is away.
. "$(dirname "$0")/lib.sh"
require getfattr python3
TEST=session
cd "$WORK" || exit 1

"$PANDO" format ./data >out 2>&1 || die "$(cat out)"
serve ./data
# mount NAME [OPTIONS]: at ./NAME, with a log of its own; ID is its client.
mount() {
    "$PANDO" -q mount unix:./data/pando.sock "./$1" -o "log=$WORK/$1.log${2:+,$2}" 2>err || die "mount: $(cat err)"
    ID=$(getfattr --only-values -n pando.client_id "./$1")
}
# logged NAME TEXT: a line of that mount's log has it, with the mount point and the client, within ten seconds.
logged() {
    local n
    for n in $(seq 200); do
        grep -F "$2" "$1.log" | grep -F "at=\"$WORK/$1\" client=$ID " >found && return 0
        # The last field.
        grep -F "$2" "$1.log" | grep -q "at=\"$WORK/$1\" client=$ID$" && return 0
        sleep 0.05
    done
    tail -n 5 "$1.log"
    return 1
}
served() { grep -qF "$1" data/log/pando.log; }

mount a
mkdir a/d && echo x >a/d/f && sync a/d/f
check "the log names the mount and its client" logged a 'msg=mounted'
check "so does the server's" served "session ${ID#client} opened (uid=0 $(hostname):$WORK/a pid "
"$PANDO" status ./a >out 2>&1
same "status of a mount" "0 1 1" "$? $(grep -c "client:   $ID\$" out) $(grep -c 'session:  open' out)"
text=$("$PANDO" status ./a/none 2>&1)
same "status of a path that is not there" "1 pando status: ./a/none: no such file or directory" "$? $text"
text=$("$PANDO" client ls --cluster ./a 2>&1)
same "a mount is no SOURCE, and what is" "2 pando client: --cluster ./a: is a mount; its server is unix:$WORK/data/pando.sock
  do: \`--cluster unix:$WORK/data/pando.sock\`" "$? $text"
check "a client is found by what its mount is called" "$PANDO" client info "$ID" --cluster ./data
text=$("$PANDO" warmup ./a/d --cluster ./data 2>&1)
same "warmup asks the path's own server" "2 pando warmup: --cluster: the server is that of the mount in which PATH is" \
    "$? $(head -n 1 <<<"$text")"

# A request that waits for what another mount keeps is seen, with what it waits for.
holder=$("$PANDO" client info "$ID" --cluster ./data | sed -n 's/^pid: //p')
first=$ID
mount e
mkdir a/own && for n in $(seq 30); do echo "$n" >a/own/$n; done
kill -STOP "$holder"
touch e/own/new &
waits=$!
pids+=($waits)
for n in $(seq 100); do
    "$PANDO" ops --cluster ./data >ops 2>&1
    grep -q capabilities ops && break
    sleep 0.05
done
kill -CONT "$holder"
check "ops shows who waits for another client's capability" grep -q "${ID#client} .*/own.* capabilities" ops
wait $waits
same "and what slow means" "those that took longer than 30 s (mds_op_complaint_time)" \
    "$("$PANDO" ops --slow --cluster ./data 2>&1 >/dev/null)"
check "unmounted" "$PANDO" umount ./e

# A mount whose daemon is stopped: nobody who asks it comes back before it goes on, not even by SIGKILL.
kill -STOP "$holder"
text=$(timeout -s KILL 30 "$PANDO" status ./a 2>&1 >out)
same "status of a mount whose daemon does not answer exits 3" 3 $?
kill -CONT "$holder"
same "and says so" "pando status: $WORK/a: its daemon does not answer: it is stopped, or hangs" "$(head -n 1 <<<"$text")"
same "first, above what the server says" "  mount: 1 1" \
    "$(head -n 1 out) $(grep -c 'session:  hung (its daemon does not answer)' out) $(grep -c 'clients:' out)"

# A mount whose daemon died, while its server is well.
mount f
kill9 "$("$PANDO" client info "$ID" --cluster ./data | sed -n 's/^pid: //p')"
text=$("$PANDO" status ./f 2>&1 >out)
same "status of a dead mount exits 5" 5 $?
same "and says so" "pando status: $WORK/f: transport endpoint is not connected (its daemon died)" "$(head -n 1 <<<"$text")"
same "first, above what the server says" "  mount: 1 1" \
    "$(head -n 1 out) $(grep -c 'session:  dead (its daemon died)' out) $(grep -c 'clients:' out)"
umount -l f
ID=$first

# Killed and started again.
kill9 $SERVER
check "the connection's end is logged" logged a 'mds.0 socket closed'
text=$(timeout 20 "$PANDO" stats ./a --count 1 2>&1)
same "its numbers are told while the server is away" 0 $?
text=$("$PANDO" status ./a 2>&1 >out)
same "status of a mount without its server exits 3" 3 $?
same "but says first how the mount is" "  mount: 1" "$(head -n 1 out) $(grep -c 'session:  lost since' out)"
same "and why" "pando status: $WORK/a: its server is gone or not reachable (unix:$WORK/data/pando.sock: connection refused)" \
    "$(head -n 1 <<<"$text")"
serve ./data
check "and its coming back" logged a 'mds.0 reconnect success'
check "by the server, too" served "session ${ID#client} resumed (uid=0 $(hostname):$WORK/a pid "

# Evicted.
check "evicted by what its mount is called" "$PANDO" client evict "$ID" --cluster ./data
check "that is logged as an error" logged a 'level=error target=mount msg="mds.0 session ended: calls fail until it is mounted again"'
check "by the server with whose session it was" served "session ${ID#client} evicted: an operator ended it (uid=0 $(hostname):$WORK/a pid "
let_pass $KEEP_OVER "attributes that the kernel keeps run out"
text=$("$PANDO" status ./a 2>&1 >out)
same "status of an evicted mount exits 5" 5 $?
same "and says so" 1 "$(grep -c "^pando status: $WORK/a: its session ended 2.* ago): evicted: an operator ended it: everything in it fails$" <<<"$text")"
same "and what to do" 1 "$(grep -c "^  do: .pando umount $WORK/a. and mount it again" <<<"$text")"
same "below what the server says" 1 "$(grep -c 'session:  ended since' out)"
check "and that works" "$PANDO" umount ./a
mount b recover_session=clean
former=$ID
check "evicted, and goes on" "$PANDO" client evict "$ID" --cluster ./data
check "it was told no" logged b 'mds.0 rejected session'
check "a file" timeout 20 bash -c 'until cat b/d/f; do sleep 0.1; done'
ID=$(getfattr --only-values -n pando.client_id ./b)
check "in a new session" [ "$ID" != "$former" ]
check "which is logged with the former one" logged b 'mds.0 new session after an eviction'
same "by its number" 1 "$(grep -c "new session.*former=$former$" b.log)"
check "unmounted" "$PANDO" umount ./b
check "by the server's log, too" served "session ${ID#client} closed by its client (uid=0 $(hostname):$WORK/b pid "

# Killed at the very moment that the kernel hands the request over, which it then tells nobody of: others would wait behind it for the
# file's lock, where no signal reaches them.
for transport in on off; do
    "$PANDO" -q mount unix:./data/pando.sock ./m -o "io_uring=$transport" 2>err || { echo "io_uring=$transport: $(cat err)"; continue; }
    mkdir -p m/d/e && seq 100000 >m/d/open && touch m/d/1 && sync m/d/open
    rm -f ready go
    timeout 100 python3 "$HERE/killed.py" "$PWD/m" ready go >out 2>&1 &
    killer=$!
    pids+=($killer)
    until [ -e ready ]; do sleep 0.05; done
    kill9 $SERVER
    let_pass $KEEP_OVER "what the kernel keeps runs out, and each of them has to ask"
    touch go
    wait $killer
    same "io_uring=$transport: who is killed ends, whatever it waits for" "0 " "$? $(cat out)"
    serve ./data
    check "io_uring=$transport: and all goes on" timeout 30 cat m/d/open
    check "io_uring=$transport: unmounted" "$PANDO" umount ./m
done
kill -TERM $SERVER
wait $SERVER
check "fsck" clean ./data
