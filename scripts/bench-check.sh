#!/usr/bin/env bash
# Short benchmarks against floors that any machine with two cores and an SSD passes with room to spare: finds a
# change that made something several times slower, nothing finer. docs/PERFORMANCE.md has the real figures.
set -u
. "$(dirname "$0")/env.sh"
cd "$ROOT" || exit 1
[ -e /dev/fuse ] || { echo "bench-check: /dev/fuse is missing: modprobe fuse" >&2; exit 1; }

cargo build --release --locked -p cli || exit 1
PANDO=$CARGO_TARGET_DIR/release/pando
WORK=$(mktemp -d "${TMPDIR:-/tmp}/pando-bench.XXXXXX") || exit 1
end() {
    "$PANDO" -q umount "$WORK/mnt" >/dev/null 2>&1 || umount -l "$WORK/mnt" 2>/dev/null
    rm -rf --one-file-system "$WORK"
}
trap end EXIT

slow=0
# floor PHASE LEAST JSON: the phase's operations per second, best of its iterations.
floor() {
    local rate
    rate=$(grep -o "\"name\":\"$1\",\"ops\":[0-9]*,\"ops_per_second\":[0-9]*" "$3" | grep -o '[0-9]*$' | sort -n | tail -n 1)
    printf '%-14s %10s/s   at least %s/s' "$1" "${rate:-none}" "$2"
    if [ "${rate:-0}" -lt "$2" ]; then
        slow=1
        echo "   TOO SLOW"
    else
        echo
    fi
}

echo "mdtest on an embedded mount, 2 processes, files of 4 KiB:"
"$PANDO" mount "$WORK/data" "$WORK/mnt" >/dev/null || exit 1
"$PANDO" bench mdtest -d "$WORK/mnt/x" -F -L -w 4096 -z 1 -b 4 -I 500 -u --np 2 -i 3 --format json >"$WORK/mdtest" || exit 1
"$PANDO" umount "$WORK/mnt" >/dev/null
floor file-create 3000 "$WORK/mdtest"
floor file-stat 15000 "$WORK/mdtest"
floor file-read 8000 "$WORK/mdtest"
floor file-remove 6000 "$WORK/mdtest"

echo "survey of the rank with journal and store, no kernel:"
"$PANDO" bench survey "$WORK/survey" --files 100000 --format json >"$WORK/survey.json" 2>/dev/null || exit 1
floor create 50000 "$WORK/survey.json"
floor lookup 100000 "$WORK/survey.json"
floor unlink 50000 "$WORK/survey.json"
exit $slow
