# A server that hangs or is gone holds up the mounts that are attached to it, but nobody who is killed before a change was sent; and
# when it is back all goes on.
. "$(dirname "$0")/lib.sh"
require flock
TEST=hang
cd "$WORK" || exit 1

"$PANDO" format ./data >/dev/null || die "format"
serve ./data
"$PANDO" mount unix:./data/pando.sock ./a -o "log=$WORK/a.log" >/dev/null || die "mount"
mkdir a/d
for n in $(seq 20); do echo "$n" >a/d/$n; done
sync a/d/*
echo locked >a/d/lock && sync a/d/lock
dd if=/dev/zero of=a/d/unread bs=1M count=4 status=none && sync a/d/unread

# gone PID: it ends within ten seconds.
gone() {
    local n
    for n in $(seq 200); do
        [ ! -d "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null && return 0
        sleep 0.05
    done
    return 1
}
# lives PID: it is there, and not as one whose end nobody has asked for yet.
lives() { ! grep -q '^State:[[:space:]]*[ZX]' "/proc/$1/status" 2>/dev/null && [ -d "/proc/$1" ]; }
# held NAME SIGNALS COMMAND...: the command waits on the mount, and the last of the signals ends it, those before do not.
held() {
    local name=$1 pid signal last signals
    read -ra signals <<<"$2"
    last=${signals[-1]}
    unset 'signals[-1]'
    shift 2
    "$@" >/dev/null 2>&1 &
    pid=$!
    pids+=($pid)
    waits_on_fuse $pid || { fail "$name" "it did not wait"; return; }
    for signal in "${signals[@]}"; do
        kill "-$signal" $pid
        was_interrupted $pid || fail "$name: $signal" "it was not heard of"
        let_pass 0.3 "what it would end has ended"
        check "$name: not by $signal alone" lives $pid
    done
    kill "-$last" $pid
    check "$name" gone $pid
    [ -d "/proc/$pid" ] && kill -9 $pid
    wait $pid 2>/dev/null
}
reads() { exec cat <&9; }
locks() { exec flock 8; }

for state in hangs "is gone"; do
    rm -f go
    # Stands ready without the files that are open below, whose closing would wait for the server.
    (
        until [ -e go ]; do sleep 0.05; done
        exec "$PANDO" serve ./data >>serve.out 2>&1
    ) &
    next=$!
    pids+=($next)
    exec 8<>a/d/lock 9<a/d/unread
    let_pass $KEEP_OVER "names and attributes that the kernel was given run out"
    if [ "$state" = hangs ]; then
        kill -STOP $SERVER
        until grep -q '^State:[[:space:]]*T' "/proc/$SERVER/status"; do sleep 0.02; done
    else
        kill9 $SERVER
    fi
    held "server $state: stat is killed" KILL stat a/d/1
    held "server $state: ls ends by SIGTERM" TERM ls -l a/d
    held "server $state: a create is killed before it is sent" KILL touch a/d/new
    held "server $state: a removal is killed before it is sent" KILL rm a/d/4
    held "server $state: a read of an open file is killed" KILL reads
    held "server $state: a wait for flock is killed" KILL locks
    # dd prints and goes on: it gets its answer, until it is killed after all.
    held "server $state: killed after a signal that it handles" "USR1 KILL" dd if=a/d/3 of=/dev/null
    dd if=a/d/5 of=five 2>/dev/null &
    handler=$!
    pids+=($handler)
    check "server $state: it waits" waits_on_fuse $handler
    kill -USR1 $handler
    check "server $state: a signal that it handles is heard of" was_interrupted $handler
    check "server $state: a handled signal ends nothing" lives $handler
    if [ "$state" = hangs ]; then
        kill -CONT $SERVER
        kill $next
    else
        SERVER=$next
        touch go
    fi
    wait $handler
    same "server $state: and the answer comes" 5 "$(cat five)"
    rm -f five
    check "server $state: then all goes on" timeout 30 bash -c 'ls -l a/d >/dev/null && echo more >>a/d/6 && sync a/d/6'
    check "server $state: no lock is left behind" timeout 30 bash -c 'flock -n a/d/lock true'
    exec 8>&- 9<&-
done

# Stopped for longer than a lease, the server does not blame its mounts for the silence.
kill -STOP $SERVER
let_pass 12 "longer than a lease"
kill -CONT $SERVER
check "stopped for more than a lease: the mount goes on" timeout 30 bash -c 'echo more >>a/d/6 && sync a/d/6'
check "stopped for more than a lease: which is logged" grep -q "mds.0 hung.* at=\"$WORK/a\" client=client[0-9]*$" a.log
check "stopped for more than a lease: and its end" grep -q "mds.0 came back.* client=client[0-9]* silent_ms=[0-9]*$" a.log
let_pass 4 "the next renewal, and what the server may still hold against its mounts"
check "stopped for more than a lease: and later" timeout 30 bash -c 'ls -l a/d >/dev/null && sync a/d/6'

# Unmounted while the server is being restarted: what programs were told was done is done.
mkdir a/told
(
    n=0
    while n=$((n + 1)); do
        : >a/told/$n && echo $n >>told
    done
) 2>/dev/null &
works=$!
pids+=($works)
until [ "$(wc -l <told 2>/dev/null || echo 0)" -gt 300 ]; do sleep 0.02; done
# The program first: a create that has reached the server is answered by it alone, also to whoever is killed.
kill -9 $works
wait $works 2>/dev/null
kill9 $SERVER
"$PANDO" umount ./a >umount.out 2>&1 &
leaves=$!
# From then on it waits for what it has to tell the server.
for n in $(seq 200); do mounted_below | grep -qxF "$WORK/a" || break; sleep 0.05; done
serve ./data
wait $leaves
same "unmounted while the server was away" "0 " "$? $(cat umount.out)"
"$PANDO" mount unix:./data/pando.sock ./a >/dev/null || die "mount"
same "what was told before is there" "" "$(while read -r n; do [ -e a/told/$n ] || echo "$n"; done <told)"
rm -rf a/told

# What one mount has written alone and not synced when the server dies, it writes again: fsync says ok, and so it is. A server that
# stops in order loses nothing.
cat >unsynced.py <<'P'
import os, sys
def go(): print("ready", flush=True); sys.stdin.readline()
def sync(fd):
    try: os.fsync(fd); return "ok"
    except OSError as e: return e.strerror
fds = [os.open(f"a/bytes.{n}", os.O_RDWR | os.O_CREAT) for n in range(40)]
for n, fd in enumerate(fds): os.write(fd, b"%d" % (n % 10) * 4096)
closed = os.open("a/bytes.closed", os.O_RDWR | os.O_CREAT); os.write(closed, b"x" * 4096); os.close(closed)
os.fsync(fds[0])
go()
said = [sync(fd) for fd in fds]
wrong = [n for n, fd in enumerate(fds) if said[n] == "ok" and os.pread(fd, 4097, 0) != b"%d" % (n % 10) * 4096]
later = os.open("a/bytes.closed", os.O_RDWR)
first = sync(later)
print(said[0], "lied:", wrong, sorted(set(said[1:]) - {"ok"}), first == "ok" and os.pread(later, 1, 0) != b"x",
      sorted({sync(fd) for fd in fds + [later]}), flush=True)
for n, fd in enumerate(fds): os.pwrite(fd, b"%d" % (n % 10) * 4096, 0)
go()
said = sorted({sync(fd) for fd in fds})
print(said, [n for n, fd in enumerate(fds) if os.pread(fd, 4097, 0) != b"%d" % (n % 10) * 4096], flush=True)
P
mkfifo to from
python3 unsynced.py <to >from 2>&1 &
pids+=($!)
exec 3>to 4<from
read -r line <&4
kill9 $SERVER
serve ./data
echo >&3
read -r line <&4
same "fsync after the server was killed" "ok lied: [] [] False ['ok']" "$line"
read -r line <&4
kill -TERM $SERVER
wait $SERVER
serve ./data
echo >&3
read -r line <&4
same "fsync after the server was stopped" "['ok'] []" "$line"
exec 3>&- 4<&-
rm -f a/bytes.*
same "nothing is missing and nothing new" 22 "$(ls a/d | wc -l)"
down ./a
kill -TERM $SERVER
wait $SERVER
check "fsck" clean ./data
