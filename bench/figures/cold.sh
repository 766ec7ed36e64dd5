#!/usr/bin/env bash
# Lookups of names the rank does not have in memory: with the store's pages in memory, and in a memory cgroup of a tenth of the
# store with dropped caches, against what fio reads at random from the same disk. No durability: nothing changes.
#
#   FILES=24000000 DIRS=2400    the tree; a run with warm pages should find 60 s of names to ask for
#   SECONDS_EACH=60 THREADS=2 DEPTH=64 MODES="auto keyed full" PERCENT=10 IOENGINE=io_uring
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-24000000} DIRS=${DIRS:-2400} SECONDS_EACH=${SECONDS_EACH:-60} THREADS=${THREADS:-2} DEPTH=${DEPTH:-64}
MODES=${MODES:-auto keyed full} PERCENT=${PERCENT:-10} IOENGINE=${IOENGINE:-io_uring}

begin "cold: pando bench cold --threads $THREADS --depth $DEPTH --files $FILES --dirs $DIRS --seconds $SECONDS_EACH --keep" fio
tree=(bench cold "$WORK/data" --threads "$THREADS" --depth "$DEPTH" --files "$FILES" --dirs "$DIRS")
"$PANDO" "${tree[@]}" --seconds 1
store=$(du -sB1 "$WORK/data/meta" | cut -f1)
limit=$((store * PERCENT / 100))
# The smallest process with the smallest cache that the configuration allows.
[ $limit -ge 134217728 ] || limit=134217728
cache=$((limit / 4))
group cold $limit
fio --name=lay --filename="$WORK/fio" --rw=write --bs=1M --size="$store" --direct=1 --ioengine="$IOENGINE" --iodepth=8 --output="$WORK/lay"
for mode in $MODES; do
    echo "mds_dir_prefetch = \"$mode\"" >"$WORK/warm.$mode"
    printf 'mds_dir_prefetch = "%s"\nmds_cache_memory_limit = %s\n' "$mode" $cache >"$WORK/cold.$mode"
done
echo "store $((store >> 20)) MiB; cgroup $((limit >> 20)) MiB ($((limit * 100 / store)) %) with mds_cache_memory_limit $((cache >> 20)) MiB"

# one CONF: asks, in this shell's cgroup.
one() { "$PANDO" --conf "$1" "${tree[@]}" --seconds "$SECONDS_EACH" --keep >"$WORK/out"; }
# seen KEY: the table's line has a name of two words.
seen() {
    echo "$1: $(grep ^cold "$WORK/out")"
    note "$1" "$(awk '$1 == "cold" { print $4 }' "$WORK/out")"
    note "cpu.$1" "$(awk '$1 == "cold" { print $7 }' "$WORK/out")"
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    for mode in $MODES; do
        cat "$WORK"/data/meta/* >/dev/null
        one "$WORK/warm.$mode"
        seen "warm.$mode"
    done
    drop_caches
    fio --name=read --filename="$WORK/fio" --rw=randread --bs=4k --iodepth=64 --direct=1 --ioengine="$IOENGINE" \
        --time_based --runtime="$SECONDS_EACH" --norandommap --randrepeat=0 --output-format=terse --terse-version=3 --output="$WORK/out"
    note fio "$(cut -d';' -f8 "$WORK/out")"
    echo "fio: $(tail -n 1 "$WORK/note.fio") reads/s"
    for mode in $MODES; do
        drop_caches
        if (echo "$BASHPID" >"$GROUP/cgroup.procs"; one "$WORK/cold.$mode"); then
            seen "cold.$mode"
        else
            echo "cold.$mode: ended, out of memory: counts as 0"
            note "cold.$mode" 0
            note "cpu.cold.$mode" 0
        fi
    done
done

echo
echo "lookups/s, median (least to most); CPU s of all threads, load generator included"
for mode in $MODES; do
    echo "warm pages, $mode: $(of "warm.$mode")/s, CPU s $(of "cpu.warm.$mode" %.1f)"
done
echo "fio, 4 KiB at random, depth 64: $(of fio) reads/s"
for mode in $MODES; do
    echo "memory of $PERCENT % of the store, $mode: $(of "cold.$mode")/s, CPU s $(of "cpu.cold.$mode" %.1f), ratio to fio $(ratio "cold.$mode" fio)"
done
echo "wanted: 200000/s with warm pages, 0.7 of fio without"
