#!/usr/bin/env bash
# SESSIONS sessions with OPENS read-only opens each on one server: its anonymous memory per idle session, and how soon it answers when it was killed
# with TAIL journalled creations that no checkpoint stored, and started again: from the start of `pando serve` to the first answer of a read and of
# a change, while all sessions come back and present their files. `plain` sessions ask for no capabilities, `caps` ones do, as mounts do.
#
#   SESSIONS=5000 OPENS=200 FILES=10000 TAIL=100000 SIDES="plain caps"    wanted: at most 16384 bytes, less than 2 s
. "$(dirname "$0")/lib.sh"
SESSIONS=${SESSIONS:-5000} OPENS=${OPENS:-200} FILES=${FILES:-10000} TAIL=${TAIL:-100000} SIDES=${SIDES:-plain caps}

begin "sessions: pando bench sessions unix:SOCK --sessions $SESSIONS --opens $OPENS --files $FILES --tail $TAIL; kill -9; pando serve"
# One descriptor for each session in the server, two and a thread in the load generator.
ulimit -n "$(ulimit -Hn)"
[ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge $((SESSIONS * 2 + 100)) ] || die "$(ulimit -n) open files are too few: set the limit to $((SESSIONS * 2 + 100))"

for ((round = 1; round <= ROUNDS; round++)); do
    for side in $(sides $round $SIDES); do
        words=()
        [ "$side" = plain ] || words+=(--caps)
        rm -rf "$WORK/data"
        serve "$WORK/data"
        # What the one before said is not to be read for this one's word.
        : >"$WORK/said"
        "$PANDO" bench sessions "unix:$WORK/data/pando.sock" --sessions "$SESSIONS" --opens "$OPENS" --files "$FILES" --tail "$TAIL" \
            --watch-pid "$SERVER" "${words[@]}" >"$WORK/out" 2>"$WORK/said" &
        load=$!
        pids+=("$load")
        until grep -q ready "$WORK/said"; do
            ! gone $load || { cat "$WORK/said"; die "the sessions failed"; }
            sleep 0.05
        done
        end "$SERVER"
        start=$EPOCHREALTIME
        serve "$WORK/data"
        wait $load || { cat "$WORK/said"; die "the sessions failed"; }
        replayed=$(sed -n 's/.*replayed \([0-9]*\) transactions.*/\1/p' "$WORK/data/log/pando.log" | tail -n 1)
        echo "round $round, $side, $replayed transactions replayed:"
        cat "$WORK/out"
        [ "$replayed" -ge "$TAIL" ] || die "a checkpoint came between: set TAIL lower"
        note "bytes.$side" "$(sed -n 's/.*memory, \([0-9]*\) bytes per session.*/\1/p' "$WORK/out")"
        note "opening.$side" "$(sed -n 's/.*session; cpu \([0-9.]*\) s$/\1/p' "$WORK/out")"
        for kind in answer change; do
            note "$kind.$side" "$(minus "$(sed -n "s/.*first $kind after [0-9.]* s at \([0-9.]*\),.*/\1/p" "$WORK/out")" "$start")"
        done
        note "all.$side" "$(sed -n 's/.* all sessions after \([0-9.]*\) s$/\1/p' "$WORK/out")"
        note "cpu.$side" "$(cpu "$SERVER")"
        kill "$SERVER"
        wait_end "$SERVER" 120 || die "the server does not end"
    done
done

echo
echo "median (least to most)"
for side in $SIDES; do
    echo "$side: $(of "bytes.$side") bytes of anonymous memory per session with $OPENS opens; CPU s of the server to open them $(of "opening.$side" %.2f)"
    echo "$side: restarted, first answer after $(of "answer.$side" %.2f) s, first change after $(of "change.$side" %.2f) s, all sessions back $(of "all.$side" %.2f) s after the loss; CPU s of the new server $(of "cpu.$side" %.1f)"
done
echo "durability: a change is answered when it is on disk; wanted: at most 16384 bytes, first answer in less than 2 s"
