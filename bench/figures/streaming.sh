#!/usr/bin/env bash
# Metadata latency beside streaming: create and stat through a mount whose daemon lives in a memory cgroup, alone and while a writer and
# a reader stream TIMES that limit of file data each through the same mount, over and over. They live in a cgroup of the same
# size, so that what they read is not in the kernel's cache. Nobody syncs the metadata; the writer syncs each file at its end.
# For comparison, the same streams in a folder of the disk: what they cost by taking CPUs and disk.
#
#   LIMIT_MIB=1024 TIMES=4 ITEMS=1000000, which the cache (a quarter of the limit) holds    wanted: p99 at most 2 times that alone
. "$(dirname "$0")/lib.sh"
LIMIT_MIB=${LIMIT_MIB:-1024} TIMES=${TIMES:-4} ITEMS=${ITEMS:-1000000}

begin "streaming: pando bench mdtest -F -C -T -r -n $ITEMS, alone and beside $((LIMIT_MIB * TIMES)) MiB written and read; cgroup $LIMIT_MIB MiB"
group daemon $((LIMIT_MIB << 20))
daemon=$GROUP
group streams $((LIMIT_MIB << 20))
streams=$GROUP
printf 'mds_cache_memory_limit = "%sM"\ndata_cache_limit = "%sM"\n' $((LIMIT_MIB / 4)) $((LIMIT_MIB / 4)) >"$WORK/pando.toml"
(inside "$daemon" "$PANDO" --conf "$WORK/pando.toml" mount --format json "$WORK/data" "$WORK/mnt") >"$WORK/word"
SERVER=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$WORK/word")
pids+=("$SERVER")
mkdir "$WORK/disk"
for dir in mnt disk; do (inside "$streams" dd if=/dev/zero of="$WORK/$dir/read" bs=1M count=$((LIMIT_MIB * TIMES)) conv=fsync status=none); done

# stream write|read DIR: until the file `stop` is there; a line for each pass.
stream() {
    local start
    echo "$BASHPID" >"$streams/cgroup.procs"
    until [ -e "$WORK/stop" ]; do
        start=$EPOCHREALTIME
        if [ "$1" = write ]; then
            dd if=/dev/zero of="$2/write" bs=1M count=$((LIMIT_MIB * TIMES)) conv=fsync status=none
        else
            dd if="$2/read" of=/dev/null bs=1M status=none
        fi
        awk -v way="$1" -v mib=$((LIMIT_MIB * TIMES)) -v s="$(minus "$EPOCHREALTIME" "$start")" 'BEGIN { printf "%s %.0f\n", way, mib / s }' >>"$WORK/streams"
    done
}

# one SIDE
one() {
    "$PANDO" bench mdtest -F -C -T -r -n "$ITEMS" -u --np 1 -d "$WORK/mnt/mdtest" --watch-pid "$SERVER" >"$WORK/out"
    echo "$1:"
    cat "$WORK/out"
    for name in create stat; do
        note "$1.$name" "$(phase file-$name 5 <"$WORK/out")"
        note "$1.$name.half" "$(phase file-$name 4 <"$WORK/out")"
    done
    note "$1.cpu" "$(awk '/^file/ { sum += $6 } END { print sum }' "$WORK/out")"
}

# beside SIDE DIR: streams in DIR.
beside() {
    local writer reader way
    rm -f "$WORK/stop"
    : >"$WORK/streams"
    stream write "$2" & writer=$!
    stream read "$2" & reader=$!
    sleep 2
    one "$1"
    touch "$WORK/stop"
    wait $writer $reader
    for way in write read; do
        echo "streams, $way, MiB/s: $(awk -v way=$way '$1 == way { print $2 }' "$WORK/streams" | paste -sd' ')"
        note "$1.$way" "$(awk -v way=$way '$1 == way { sum += $2; n++ } END { print sum / n }' "$WORK/streams")"
    done
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round"
    one alone
    beside elsewhere "$WORK/disk"
    beside beside "$WORK/mnt"
done
down "$WORK/mnt"

echo
echo "p99 in us, median (least to most); CPU s of the daemon's threads"
for name in create stat; do
    echo "$name: alone $(of alone.$name), beside $(of beside.$name), ratio $(ratio beside.$name alone.$name); streams elsewhere $(of elsewhere.$name), ratio $(ratio elsewhere.$name alone.$name)"
    echo "    p50: alone $(of alone.$name.half), beside $(of beside.$name.half), streams elsewhere $(of elsewhere.$name.half)"
done
for side in beside elsewhere; do
    echo "streams $side: write $(of $side.write) MiB/s, read $(of $side.read) MiB/s; CPU s of the daemon $(of $side.cpu %.1f), alone $(of alone.cpu %.1f)"
done
echo "durability: metadata applied and journalled, on disk a few milliseconds later; streamed files synced at their end"
echo "wanted: ratio of p99 at most 2"
