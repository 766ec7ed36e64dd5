# Sourced after lib.sh by scripts about ranks that come, go and die under load: a server with slots, the load of `pando bench steady`, and what its
# calls say. Absent: what is measured.

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
# requests RANK...: how many each was asked in this life.
requests() {
    local rank
    for rank in "$@"; do ask --format json tell "mds.$rank" perf dump | python3 -c 'import json, sys; print(json.load(sys.stdin)["mds"]["request"])'; done | paste -sd' '
}
# served RANK... : how many since `requests` said BEFORE.
served() { paste -d' ' <(tr ' ' '\n' <<<"$BEFORE") <(requests "$@" | tr ' ' '\n') | awk '{ print $2 - $1 }' | paste -sd' '; }

# pinned NAME RANK: a folder of the root whose content is that rank's.
pinned() {
    [ -d "$WORK/mnt/root" ] || { mkdir -p "$WORK/mnt" && "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" && mkdir "$WORK/mnt/root"; }
    mkdir "$WORK/mnt/$1"
    setfattr -n ceph.dir.pin -v "$2" "$WORK/mnt/$1"
}

now() { date +%s.%N; }

# load ARGS...: goes on in the background until `unload`; LOAD is the process, its seconds are in WORK/load, each call in WORK/calls. Returns in its
# third second: what comes first counts nowhere.
load() {
    rm -f "$WORK/load" "$WORK/calls"
    "$PANDO" bench steady "unix:$WORK/data/pando.sock" --seconds 86400 --calls "$WORK/calls" "$@" >"$WORK/load" 2>&1 &
    LOAD=$!
    pids+=("$LOAD")
    until_true grep -q ' ops ' "$WORK/load"
    sleep 2
    LOADED=$(now) USED="$(cpu "$SERVER") $(cpu "$LOAD")"
}

# unload: ends it; notes the CPU seconds since `load`, and the clients that hang: they had no answer in the last second.
unload() {
    local server clients until
    until=$(now)
    read -r server clients <<<"$USED"
    note cpu "$(minus "$(cpu "$SERVER")" "$server")"
    note cpu.clients "$(minus "$(cpu "$LOAD")" "$clients")"
    note lasted "$(minus "$until" "$LOADED")"
    # Calls are written when their second is over.
    until_true awk -v until="$until" '$3 == "ops" && $1 > until { found = 1 } END { exit !found }' "$WORK/load"
    kill "$LOAD" || die "the load has ended: $(tail -n 1 "$WORK/load")"
    wait_end "$LOAD" 10 || die "the load does not end"
    # Ended while it wrote it leaves half a line.
    [ -z "$(tail -c 1 "$WORK/calls")" ] || sed -i '$d' "$WORK/calls"
    cat "$WORK/load"
    note hang "$(awk '
        { at = $1 + $2 / 1e6; last[$4] = at; if (at > end) end = at }
        END { for (client in last) if (end - last[client] > 1) n++; print n + 0 }' "$WORK/calls")"
}

# part FROM TO [GROUP]: good answers per second; of all calls under way meanwhile, also those that failed, p50, p99 and the longest (us), errors, how many.
part() {
    awk -v from="$1" -v to="$2" -v group="${3:-}" '
        function at(share,   us, seen) { for (us = 0; us <= most; us++) if (us in count) { seen += count[us]; if (seen >= n * share) return us } }
        (group != "" && $3 != group) || $1 >= to { next }
        { end = $1 + $2 / 1e6 }
        end < from { next }
        { n++; count[$2]++; if ($2 + 0 > most) most = $2 + 0 }
        $6 != "ok" { errors++; next }
        end <= to { ops++ }
        END { if (!n) exit 1; printf "%.0f %d %d %d %d %d\n", ops / (to - from), at(0.5), at(0.99), most, errors, n }' "$WORK/calls"
}

# span NAME FROM TO [GROUP]: says it, and notes it: rate.NAME, p50.NAME and p99.NAME (us), longest.NAME (ms), errors.NAME.
span() {
    local found rate p50 p99 most errors calls
    found=$(part "${@:2}") || die "no calls: $*"
    read -r rate p50 p99 most errors calls <<<"$found"
    echo "${4:+$4, }$1, $(minus "$3" "$2") s: $rate calls/s; of $calls under way p50 $p50 us, p99 $p99 us, longest $most us, $errors errors"
    note "rate.$1" "$rate"
    note "p50.$1" "$p50"
    note "p99.$1" "$p99"
    note "longest.$1" "$(per "$most" 1000)"
    note "errors.$1" "$errors"
}

# quantile KEY SHARE: of all that was noted.
quantile() { sort -g "$WORK/note.$1" | awk -v share="$2" '{ v[NR] = $1 } END { i = int(NR * share); if (i < NR * share) i++; print v[i] }'; }

# costs: the last words of each script.
costs() {
    echo "CPU seconds of all threads in $(of lasted) s: server $(of cpu %.1f), clients $(of cpu.clients %.1f); clients that hang at the end: $(of hang); durability: a change is on disk when it is answered"
}
