# Sourced after lib.sh by scripts about ranks that come, go and die under load: a server with slots, the load of `pando bench steady`, and what its
# seconds say. Absent: what is measured.

# serve_ranks SLOTS RANKS: a server of WORK/data, all of whose ranks are active.
serve_ranks() {
    serve "$WORK/data" --ranks "$1"
    ask fs set pandofs max_mds "$2" >/dev/null
    until_true serve_all "$2"
}
ask() { "$PANDO" "$@" --cluster "$WORK/data"; }
serve_all() { [ "$(ask fs get pandofs | grep -c ' state up:active ')" = "$1" ]; }
# life RANK
life() { ask fs get pandofs 2>/dev/null | sed -n "s/^\[mds\..*{$1:[0-9]*} state up:active incarnation \([0-9]*\)]$/\1/p"; }

# pinned NAME RANK: a folder of the root whose content is that rank's.
pinned() {
    [ -d "$WORK/mnt/root" ] || { mkdir -p "$WORK/mnt" && "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" && mkdir "$WORK/mnt/root"; }
    mkdir "$WORK/mnt/$1"
    setfattr -n ceph.dir.pin -v "$2" "$WORK/mnt/$1"
}

# load SECONDS ARGS...: in the background; LOAD is the process, its seconds are in WORK/load.
load() {
    local seconds=$1
    shift
    "$PANDO" bench steady "unix:$WORK/data/pando.sock" --seconds "$seconds" "$@" >"$WORK/load" 2>&1 &
    LOAD=$!
    pids+=("$LOAD")
}
now() { date +%s.%N; }

# part FROM TO [GROUP]: of the seconds that ended between: calls/s, median of the p50 and of the p99, highest p99, highest of all (us), errors.
part() {
    awk -v from="$1" -v to="$2" -v group="${3:-}" '
        $3 == "ops" && $1 >= from && $1 <= to && (group == "" || $2 == group) {
            seconds[$1] = 1; ops += $4; p50[++n] = $6; p99[n] = $8; errors += $13
            if ($8 > worst) worst = $8
            if ($10 > most) most = $10
        }
        function middle(list, n, i, j, t) {
            for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
            return n ? list[int((n + 1) / 2)] : 0
        }
        END { m = 0; for (s in seconds) m++; printf "%.0f %.0f %.0f %.0f %.0f %d\n", m ? ops / m : 0, middle(p50, n), middle(p99, n), worst, most, errors }' "$WORK/load"
}
# words FROM TO [GROUP]: the same for people.
words() { part "$@" | awk '{ printf "%d calls/s, p50 %d us, p99 %d us (highest %d), highest of all %d us, %d errors", $1, $2, $3, $4, $5, $6 }'; }
