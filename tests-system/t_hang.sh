# A server that hangs or is gone holds up the mounts that are attached to it, but nobody who is killed; and when it is back all goes on.
. "$(dirname "$0")/lib.sh"
require flock
TEST=hang
cd "$WORK" || exit 1

"$PANDO" format ./data >/dev/null || die "format"
serve() {
    "$PANDO" serve ./data >>serve.out 2>&1 &
    server=$!
    pids+=($server)
    until "$PANDO" status --cluster ./data >/dev/null 2>&1 || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
}
serve
"$PANDO" mount unix:./data/pando.sock ./a >/dev/null || die "mount"
mkdir a/d
for n in $(seq 20); do echo "$n" >a/d/$n; done
echo locked >a/lock && sync a/lock
# Nothing of it may be answered by the kernel alone.
sleep 1.1

# gone PID: it ends within five seconds.
gone() {
    local n
    for n in $(seq 100); do
        [ ! -d "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null && return 0
        sleep 0.05
    done
    return 1
}
# held NAME SIGNAL COMMAND...: the command waits on the mount, and the signal ends it.
held() {
    local name=$1 signal=$2 pid
    shift 2
    "$@" >/dev/null 2>&1 &
    pid=$!
    pids+=($pid)
    sleep 0.3
    [ -d "/proc/$pid" ] || { fail "$name" "it did not wait"; return; }
    kill "-$signal" $pid
    check "$name" gone $pid
    wait $pid 2>/dev/null
}
for state in hangs "is gone"; do
    if [ "$state" = hangs ]; then kill -STOP $server; else kill9 $server; fi
    held "server $state: stat is killed" KILL stat a/d/1
    held "server $state: ls ends by SIGTERM" TERM ls -l a/d
    held "server $state: a read ends by SIGINT" INT cat a/d/2
    held "server $state: a create is killed" KILL touch a/d/new
    held "server $state: a write is killed" KILL dd if=/dev/zero of=a/d/3 bs=1M count=4 conv=notrunc
    held "server $state: a removal is killed" KILL rm a/d/4
    held "server $state: a wait for a lock is killed" KILL flock a/lock true
    # A signal that is handled ends nothing: the answer comes when the server is back.
    dd if=a/d/5 of=five 2>/dev/null &
    handler=$!
    pids+=($handler)
    sleep 0.3
    kill -USR1 $handler
    sleep 0.3
    check "server $state: a handled signal ends nothing" kill -0 $handler
    if [ "$state" = hangs ]; then kill -CONT $server; else serve; fi
    wait $handler
    same "server $state: and the answer comes" 5 "$(cat five)"
    rm -f five
    check "server $state: then all goes on" timeout 20 bash -c 'ls -l a/d >/dev/null && echo more >>a/d/6 && flock a/lock true && sync a/d/6'
done
same "what nobody killed is whole" 18 "$(ls a/d | grep -vcE '^(new|3|4)$')"
down ./a
kill -TERM $server
wait $server
check "fsck" clean ./data
