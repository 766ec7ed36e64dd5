# fsx on a file of rank 2 of four, whose lives are failed, then crashed over and over meanwhile: each operation finds what the file must hold, and the
# program sees no error.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require fsx setfattr
TEST=fsx_ranks
ROUNDS=${PANDO_FAILOVERS:-5}
echo "PANDO_SEED=$SEED"
cd "$WORK" || exit 1

serve_ranks 5 4
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"
pinned two 2
mkdir artifacts
# Until it is told to end: runs of so many operations with seeds that follow from the first.
runs() {
    local seed=$((SEED % 1000000)) n=0
    while [ ! -e "stop.$1" ]; do
        seed=$((seed + 1))
        "$TOOLS/bin/fsx" -q -S "$seed" -N "${OPERATIONS:-2000}" -f "$HERE/$1.toml" -P artifacts "mnt/two/fsx.$seed" >fsx.out 2>&1 ||
            { echo "seed $seed: $(cat fsx.out)" && return 1; }
        rm "mnt/two/fsx.$seed"
        n=$((n + 1))
        echo "$n" >>"runs.$1"
    done
}
goes() { [ "$(wc -l <"runs.$1")" -gt "$2" ] || ! kill -0 "$runner" 2>/dev/null; }
# What was not synced survives a failure, which writes it, and a crash, after which the mount does.
for kind in fail crash; do
    config=fsx
    [ $kind = fail ] || config=fsx_crash
    : >runs.$config
    runs $config >err.$config 2>&1 &
    runner=$!
    pids+=($runner)
    for round in $(seq "$ROUNDS"); do
        before=$(wc -l <runs.$config)
        sleep "0.$((RANDOM % 9 + 1))"
        check "$kind $round" harm 2 $kind
        check "$kind $round: fsx goes on" within goes $config "$before"
    done
    touch stop.$config
    wait $runner
    same "$kind: every operation found what it had to ($(wc -l <runs.$config) runs)" "0 " "$? $(tail -n 5 err.$config)"
done
"$PANDO" umount "$WORK/mnt" >err 2>&1 || die "umount: $(cat err)"
kill "$SERVER" && wait_gone "$SERVER"
check "fsck afterwards" clean "$WORK/data"
