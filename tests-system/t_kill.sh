# kill -9 under load, ten times on one folder: after each, fsck is clean, the mount comes back, and everything
# ever noted as synced is there with its content.
. "$(dirname "$0")/lib.sh"
require
TEST=kill
ROUNDS=${PANDO_KILLS:-10}
cd "$WORK" || exit 1

# What each step of the churn below leaves is lost from some step on and whole before it, and so it is in a folder per round.
cat >halves.py <<'P'
import os, sys

def content(path, n):
    found, whole = open(path, "rb").read(), b"%d\n" % n
    return found in (b"", bytes(len(whole)), whole) or f"{path} holds {found}"

def step(folder, n, last):
    there, named = (f"{folder}/{kind}{n}" for kind in "dl")
    files = sorted(os.listdir(there)) if os.path.isdir(there) else None
    if os.path.exists(named) != (n <= last):
        yield f"l{n} is missing beside l{last}"
        return
    if n > last:
        yield files in ((None, [], ["a"], ["b"]) if n == last + 1 else (None,)) or f"d{n} holds {files} beside l{last}"
    else:
        gone = (None,) if n < last - 5 else (None, [], ["b"]) if n == last - 5 else (["b"],)
        yield files in gone or f"d{n} holds {files} beside l{last}"
        names = 2 if files else 1
        yield os.stat(named).st_nlink == names or f"l{n} has {os.stat(named).st_nlink} names, not {names}"
        yield content(named, n)
        if files == ["b"]:
            yield os.path.samefile(named, f"{there}/b") or f"l{n} is not d{n}/b"
    for name in files or []:
        yield content(f"{there}/{name}", n)

def numbers(folder, kind):
    return [int(name[1:]) for name in os.listdir(folder) if name[0] == kind]

for folder in sys.argv[1:]:
    last = max(numbers(folder, "l"), default=0)
    most = max(numbers(folder, "d") + [last])
    for n in range(1, most + 1):
        for verdict in step(folder, n, last):
            if verdict is not True:
                print(f"{folder}: {verdict}")
P

lines() { cat "$WORK"/ack.* 2>/dev/null | wc -l; }
for round in $(seq "$ROUNDS"); do
    up "$WORK/data" "$WORK/mnt"
    mkdir -p "$WORK/mnt/synced" "$WORK/mnt/churn/$round"
    before=$(lines)
    for writer in 1 2 3; do
        first=$(((round * 10 + writer) * 1000000))
        # Sizes on both sides of what is packed.
        size=$((writer == 3 ? 200000 : writer * 3000))
        "$PANDO" load write --first $first --bytes $size "$WORK/mnt/synced" "$WORK/ack.$round.$writer" 2>/dev/null &
        pids+=($!)
    done
    # Changes that nobody syncs: they may be lost, never half done.
    (
        cd "$WORK/mnt/churn/$round" 2>/dev/null || exit
        for n in $(seq 100000); do
            mkdir "d$n" && echo $n >"d$n/a" && mv "d$n/a" "d$n/b" && ln "d$n/b" "l$n" && rm -r "d$((n - 5))" 2>/dev/null
            [ -d "$WORK/mnt/churn/$round" ] || exit
        done
    ) 2>/dev/null &
    pids+=($!)
    # Killed after different amounts of work.
    until [ $(($(lines) - before)) -ge $((20 * round)) ] || ! [ -d "/proc/$SERVER" ]; do sleep 0.05; done
    kill9 "$SERVER"
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done
    pids=()
    umount -l "$WORK/mnt"
    check "round $round: fsck" clean "$WORK/data"
    up "$WORK/data" "$WORK/mnt"
    bad=0
    for ack in "$WORK"/ack.*; do
        "$PANDO" load verify "$WORK/mnt/synced" "$ack" >>"$WORK/verify" 2>&1 || bad=1
    done
    same "round $round: every synced file ($(lines))" 0 $bad
    [ $bad = 0 ] || tail -n 5 "$WORK/verify"
    same "round $round: no half operation" "" "$(python3 halves.py mnt/churn/* 2>&1 | tail -n 5)"
    steps=$(find mnt/churn -name 'l*' | wc -l)
    down "$WORK/mnt"
done
check "of $steps steps" [ "$steps" -gt 0 ]
check "fsck at the end" clean "$WORK/data"
