#!/usr/bin/env bash
# What one operation takes of one process: create with 4 KiB written and the close, stat, unlink, through a mount and through the null responder on the
# same transport of FUSE, in turn: io_uring, and /dev/fuse (`classic`). The null responder keeps nothing.
#
#   ITEMS=20000 WRITE_BYTES=4096 TRANSPORTS="uring classic" LOAD_CPU=    wanted: 1.3 of the null responder
#
# With LOAD_CPU=N the load stays on CPU N. Else the scheduler may move it to another CPU with each answer, which costs both sides more
# than the answer (docs/PERFORMANCE.md, "Where the time goes").
. "$(dirname "$0")/lib.sh"
ITEMS=${ITEMS:-20000} WRITE_BYTES=${WRITE_BYTES:-4096} TRANSPORTS=${TRANSPORTS:-uring classic} LOAD_CPU=${LOAD_CPU:-}

begin "latency: pando bench mdtest -F -C -T -r -n $ITEMS -w $WRITE_BYTES -u --np 1, PandoFS and the null responder, transports: $TRANSPORTS${LOAD_CPU:+, load on CPU $LOAD_CPU}" "$NULL"
load=("$PANDO")
[ -z "$LOAD_CPU" ] || load=(taskset -c "$LOAD_CPU" "$PANDO")

# start SIDE TRANSPORT: mounts it at WORK/mnt; SERVER is its process.
start() {
    if [ "$1" = pando ]; then
        local io_uring=on
        [ "$2" = uring ] || io_uring=off
        up "$WORK/data" "$WORK/mnt" -o "io_uring=$io_uring"
        return
    fi
    mkdir -p "$WORK/mnt"
    "$NULL" "$WORK/mnt" "$2" 2>"$WORK/null.log" &
    SERVER=$!
    pids+=("$SERVER")
    disown "$SERVER"
    until_true mountpoint -q "$WORK/mnt"
}

for ((round = 1; round <= ROUNDS; round++)); do
    for transport in $TRANSPORTS; do
        for side in $(sides $round pando null); do
            start "$side" "$transport"
            "${load[@]}" bench mdtest -F -C -T -r -n "$ITEMS" -w "$WRITE_BYTES" -u --np 1 -d "$WORK/mnt/mdtest" --watch-pid "$SERVER" --json >"$WORK/out"
            for name in create stat remove; do
                for each in p50 p99; do note "$each.$transport.$side.$name" "$(field file-$name ${each}_us <"$WORK/out")"; done
                note "cpu.$transport.$side.$name" "$(field file-$name server_cpu_seconds <"$WORK/out")"
                echo "round $round, $transport, $side, $name: p50 $(tail -n 1 "$WORK/note.p50.$transport.$side.$name") us, p99 $(tail -n 1 "$WORK/note.p99.$transport.$side.$name") us"
            done
            umount "$WORK/mnt"
            wait_end "$SERVER" 120 || die "$side goes on without its mount"
            rm -rf "$WORK/data"
        done
    done
done

echo
echo "us, median (least to most); CPU s of the threads of the process that answers FUSE"
for transport in $TRANSPORTS; do
    for name in create stat remove; do
        for each in p50 p99; do
            echo "$transport, $name, $each: PandoFS $(of "$each.$transport.pando.$name" %.1f), null responder $(of "$each.$transport.null.$name" %.1f), ratio $(ratio "$each.$transport.pando.$name" "$each.$transport.null.$name")"
        done
        echo "    CPU s $(of "cpu.$transport.pando.$name" %.2f), $(of "cpu.$transport.null.$name" %.2f)"
    done
done
echo "durability: metadata applied and journalled, on disk a few milliseconds later, data after fsync; the null responder keeps nothing; wanted: 1.3 of its p50"
