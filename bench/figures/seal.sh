#!/usr/bin/env bash
# A directory of NAMES names goes from rank to rank and back (`ceph.dir.pin`) under load: what the calls take that are under way meanwhile. Its clients create, stat and
# unlink in it alone, one call at a time each. The server's log says when a move was over and how long the directory was sealed: the calls that are under way then were parked
# by the seal. Beside them: all calls that are under way during a move, before and after the seal too, and the same of as many and as long pieces of the time before.
#
#   NAMES=10000 CLIENTS=16 MOVES=10 EVERY=3      seconds between moves
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/steady.sh"
NAMES=${NAMES:-10000} CLIENTS=${CLIENTS:-16} MOVES=${MOVES:-10} EVERY=${EVERY:-3}

begin "seal: pando bench steady --groups s --dirs 1 --clients $CLIENTS in a directory of $NAMES names; pinned to ranks 1 and 2 by turns, $MOVES times" setfattr python3
# meanwhile KEY: notes the calls that are under way in the spans of WORK/KEY, and the longest of each client in each (ms).
meanwhile() {
    awk -v each="$WORK/note.each.$1" -v longest="$WORK/note.longest.$1" '
        NR == FNR { from[NR] = $1; to[NR] = $2; spans = NR; next }
        { for (i = 1; i <= spans; i++) if ($1 < to[i] && $1 + $2 / 1e6 > from[i]) {
            print $2 / 1000 >> each
            if ($2 / 1000 > most[i " " $4]) most[i " " $4] = $2 / 1000
        } }
        END { for (one in most) print most[one] >> longest }' "$WORK/$1" "$WORK/calls"
}

# parked: notes the calls (ms) that were under way when a seal ended, and how long each was.
parked() {
    python3 - "$WORK/data/log/pando.log" "$WORK/calls" "$LOADED" >"$WORK/parked" <<'PYTHON'
import re, sys
from datetime import datetime
ends, calls = [], []
for line in open(sys.argv[1]):
    found = re.match(r'ts=(\S+)Z .*directory \S+ has moved to rank \d+: sealed for (\d+) us', line)
    if found:
        end = datetime.fromisoformat(found[1] + "+00:00").timestamp()
        if end >= float(sys.argv[3]):
            ends.append(end)
            print("sealed", int(found[2]) / 1000)
for line in open(sys.argv[2]):
    begin, took = map(float, line.split()[:2])
    if any(begin < end <= begin + took / 1e6 for end in ends):
        print("parked", took / 1000)
PYTHON
    awk -v to="$WORK/note." '{ print $2 >> (to $1) }' "$WORK/parked"
}

serve_ranks 3 3
pinned s 1
mkdir "$WORK/mnt/s/d0"
(cd "$WORK/mnt/s/d0" && seq -f 'name%08.0f' "$NAMES" | xargs touch)
for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    load --groups s --dirs 1 --clients "$CLIENTS"
    sleep "$EVERY"
    # There and back once: who asks a rank for the first time opens a session with it first.
    for to in $((1 + (1 + (round - 1) * MOVES) % 2)) $((1 + (round - 1) * MOVES % 2)); do setfattr -n ceph.dir.pin -v $to "$WORK/mnt/s" && sleep 1; done
    LOADED=$(now)
    sleep $((3 * EVERY))
    begun=$(now)
    : >"$WORK/moving"
    for ((i = 1; i <= MOVES; i++)); do
        to=$((1 + (i + (round - 1) * MOVES) % 2))
        from=$(now)
        setfattr -n ceph.dir.pin -v $to "$WORK/mnt/s"
        echo "$from $(now)" >>"$WORK/moving"
        note took "$(awk 'END { printf "%.4f", $2 - $1 }' "$WORK/moving")"
        echo "move $i to rank $to: $(tail -n 1 "$WORK/note.took") s"
        sleep "$EVERY"
    done
    end=$(now)
    unload
    awk -v at="$LOADED" -v step="$(per $((3 * EVERY)) "$MOVES")" '{ printf "%.6f %.6f\n", at + (NR - 1) * step, at + (NR - 1) * step + $2 - $1 }' "$WORK/moving" >"$WORK/quiet"
    parked
    meanwhile moving
    meanwhile quiet
    span before "$LOADED" "$begun"
    span after "$begun" "$end"
done

echo
echo "$(wc -l <"$WORK/note.sealed") seals of $(of sealed %.1f) ms parked $(wc -l <"$WORK/note.parked") calls: p50 $(quantile parked 0.5) ms, p99 $(quantile parked 0.99) ms, longest $(quantile parked 1) ms"
for when in moving quiet; do
    echo "$when: p99 of $(wc -l <"$WORK/note.each.$when") calls under way $(quantile each.$when 0.99) ms; longest of each client in each, $(wc -l <"$WORK/note.longest.$when"): p50 $(quantile longest.$when 0.5) ms, p99 $(quantile longest.$when 0.99) ms, highest $(quantile longest.$when 1) ms"
done
echo "all calls, before any move: p99 $(of p99.before) us, longest $(of longest.before %.1f) ms; from the first move on: p99 $(of p99.after) us, longest $(of longest.after %.1f) ms; errors $(of errors.after)"
echo "a move took $(of took %.3f) s"
costs
echo "wanted: p99 of what was parked below 10 ms"
