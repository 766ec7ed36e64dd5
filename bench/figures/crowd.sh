#!/usr/bin/env bash
# One rank under LISTERS clients that list a directory of ENTRIES files without end, one that creates and unlinks elsewhere and one that stats files of
# the listed directory: how long the rank's turns are and how long requests wait for theirs, as the server counts them (`perf dump`: from when a request may have
# lain in its socket to its step), and what the clients see, which has the waits for CPUs in it. Each client has a session of the Rust API on the server's unix socket.
# OTHER=DIR: the same clients, as threads, on a folder of another mount (CephFS, for example), in turn; and with MOUNT=1 on a mount of ours.
#
#   LISTERS=8 ENTRIES=40000 SECONDS_EACH=60 OTHER= MOUNT=    wanted: p99 of the wait at most 5 ms (at most 1 % of the requests), longest turn 5 ms
. "$(dirname "$0")/lib.sh"
LISTERS=${LISTERS:-8} ENTRIES=${ENTRIES:-40000} SECONDS_EACH=${SECONDS_EACH:-60} OTHER=${OTHER:-} MOUNT=${MOUNT:-}

begin "crowd: pando bench crowd unix:SOCK --listers $LISTERS --entries $ENTRIES --seconds $SECONDS_EACH${OTHER:+; the same on --path $OTHER}"
[ -z "$OTHER" ] || [ -d "$OTHER" ] || die "$OTHER is no folder"
words=(--listers "$LISTERS" --entries "$ENTRIES" --seconds "$SECONDS_EACH")
SIDES="api${MOUNT:+ mount}${OTHER:+ other}"

# seen SIDE
seen() {
    echo "round $round, $1:"
    cat "$WORK/out"
    for name in list create unlink stat; do
        # A listing may take longer than the run.
        note "$1.$name" "$(phase $name 5 <"$WORK/out" | grep . || echo nan)"
        note "half.$1.$name" "$(phase $name 4 <"$WORK/out" | grep . || echo nan)"
    done
    note "names.$1" "$(sed -n 's/^\([0-9]*\) names.*/\1/p' "$WORK/out")"
}

for ((round = 1; round <= ROUNDS; round++)); do
    for side in $SIDES; do
        [ $side = other ] || { rm -rf "$WORK/data"; serve "$WORK/data"; server=$SERVER; }
        case $side in
        api)
            "$PANDO" bench crowd "unix:$WORK/data/pando.sock" "${words[@]}" --watch-pid "$server" >"$WORK/out"
            note turn "$(sed -n 's/^rank: .* the longest \([0-9]*\) us.*/\1/p' "$WORK/out")"
            note late "$(sed -n 's/^queue: .*: \([0-9.]*\) % of the requests/\1/p' "$WORK/out")"
            note wait "$(sed -n 's/^queue: .* requests, \([0-9]*\) us each.*/\1/p' "$WORK/out")"
            note most "$(sed -n 's/^queue: .* the longest \([0-9]*\) us.*/\1/p' "$WORK/out")"
            note cpu "$(sed -n 's/^cpu s of the server: //p' "$WORK/out")"
            ;;
        mount)
            up "unix:$WORK/data/pando.sock" "$WORK/mnt"
            "$PANDO" bench crowd --path "$WORK/mnt" "${words[@]}" >"$WORK/out"
            down "$WORK/mnt"
            ;;
        other)
            "$PANDO" bench crowd --path "$OTHER" --dir "crowd.$$.$round" "${words[@]}" >"$WORK/out"
            rm -rf "$OTHER/crowd.$$.$round" "$OTHER/crowd.$$.$round.other"
            ;;
        esac
        seen $side
        [ $side = other ] || { kill "$server"; wait_end "$server" 120 || die "the server does not end"; }
    done
done

echo
echo "median (least to most)"
echo "rank: longest turn $(of turn) us; requests that waited over 5 ms $(of late %.3f) %, $(of wait) us on average, the longest $(of most) us; CPU s of the server $(of cpu %.1f)"
for side in $SIDES; do
    echo "$side: $(of "names.$side") names/s listed; p99 in us (p50): stat $(of "$side.stat") ($(median "half.$side.stat")), create $(of "$side.create") ($(median "half.$side.create")), unlink $(of "$side.unlink") ($(median "half.$side.unlink")), a listing $(of "$side.list") ($(median "half.$side.list"))"
done
echo "durability: over the socket a change is answered when it is on disk"
echo "wanted: the longest turn at most 5000 us, at most 1 % of the requests waited longer than 5 ms"
