# fsx on a file of rank 2 of four: with all of its operations, then with those that a mount can write again, while lives of that rank end over and over
# (failed, crashed, hanging): each operation finds what the file must hold, and the program sees no error.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require fsx setfattr
TEST=fsx_ranks
ROUNDS=${PANDO_FAILOVERS:-8}
echo "PANDO_SEED=$SEED"
cd "$WORK" || exit 1

serve_ranks 5 4
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"
pinned two 2
mkdir artifacts
check "every operation, seed $((SEED % 1000000))" "$TOOLS/bin/fsx" -q -S $((SEED % 1000000)) -N 10000 -f "$HERE/fsx.toml" -P artifacts mnt/two/fsx.all
# Until it is told to end: runs of so many operations with seeds that follow from the first.
runs() {
    local seed=$((SEED % 1000000)) n=0
    while [ ! -e stop ]; do
        seed=$((seed + 1))
        "$TOOLS/bin/fsx" -q -S "$seed" -N "${OPERATIONS:-2000}" -f "$HERE/fsx_ranks.toml" -P artifacts "mnt/two/fsx.$seed" >fsx.out 2>&1 ||
            { echo "seed $seed: $(cat fsx.out)" && return 1; }
        rm "mnt/two/fsx.$seed"
        n=$((n + 1))
        echo "$n" >>runs
    done
}
: >runs
runs >runs.err 2>&1 &
runner=$!
pids+=($runner)
goes() { [ "$(wc -l <runs)" -gt "$1" ] || ! kill -0 $runner 2>/dev/null; }
kinds=(fail crash fail crash hang)
for round in $(seq "$ROUNDS"); do
    before=$(wc -l <runs)
    kind=${kinds[RANDOM % 5]}
    sleep "0.$((RANDOM % 9 + 1))"
    check "round $round: $kind" harm 2 "$kind"
    check "round $round: fsx goes on" within goes "$before"
done
touch stop
wait $runner
same "every operation found what it had to ($(wc -l <runs) runs)" "0 " "$? $(tail -n 5 runs.err)"
"$PANDO" umount "$WORK/mnt" >err 2>&1 || die "umount: $(cat err)"
kill "$SERVER" && wait_gone "$SERVER"
check "fsck afterwards" clean "$WORK/data"
