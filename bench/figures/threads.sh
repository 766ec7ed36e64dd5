#!/usr/bin/env bash
# Client threads on one rank in one process: its rate with 64 threads against the best of 1, 2, 4, ... 64. `survey` threads have a session
# each and hand 32 requests over together; `api` threads share one session of the Rust API (`mount::Fs`) and call it by path, so that a create is
# a lookup of the directory and a creation; `socket` threads do the same on the unix socket of a server. Each thread has a directory of its own; the number of files in all is the same for each number of threads.
# Lookups and getattrs of all files are done PASSES times, and the median pass counts: a checkpoint of what was created falls into one.
#
#   FILES=1024000 PASSES=5 THREADS="1 2 4 8 16 32 64" SIDES="survey api socket"    wanted: 0.95 of the best
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-1024000} PASSES=${PASSES:-5} THREADS=${THREADS:-1 2 4 8 16 32 64} SIDES=${SIDES:-survey api socket}
TESTS="create lookup getattr unlink"
again() { for ((i = 0; i < PASSES; i++)); do printf '%s,' "$1"; done; }

begin "threads: pando bench survey --threads N --depth 32 and pando bench calls --threads N --paths, $FILES files in all, $PASSES passes, N: $THREADS"
last=${THREADS##* }

# middle <VALUES, one a line
middle() { sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

# one SIDE THREADS
one() {
    rm -rf "$WORK/data"
    local words=(--threads "$2" --files $((FILES / $2)) --tests "create,$(again lookup)$(again getattr)unlink")
    case $1 in
    survey) "$PANDO" bench survey "$WORK/data" "${words[@]}" --depth 32 >"$WORK/out" ;;
    api) "$PANDO" bench calls "$WORK/data" "${words[@]}" --paths >"$WORK/out" ;;
    socket)
        serve "$WORK/data"
        "$PANDO" bench calls "unix:$WORK/data/pando.sock" "${words[@]}" --paths --watch-pid "$SERVER" >"$WORK/out"
        kill "$SERVER"
        wait_end "$SERVER" 120 || die "the server does not end"
        ;;
    esac
    echo "$1, $2 threads:"
    cat "$WORK/out"
    for test in $TESTS; do
        note "$1.$test.$2" "$(phase "$test" 3 <"$WORK/out" | middle)"
        clients=$(sed -n "s/^cpu s of the clients: .*$test \([0-9.]*\).*/\1/p" "$WORK/out")
        # `-` where the server is in the same process.
        note "cpu.$1.$test.$2" "$(awk -v a="$(phase "$test" 6 <"$WORK/out" | middle)" -v b="${clients:-0}" 'BEGIN { print a + b }')"
    done
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round"
    for side in $(sides $round $SIDES); do
        for threads in $(sides $round $THREADS); do one "$side" "$threads"; done
    done
    for side in $SIDES; do
        for test in $TESTS; do
            best=0
            for threads in $THREADS; do
                rate=$(tail -n 1 "$WORK/note.$side.$test.$threads")
                best=$(awk -v a="$rate" -v b="$best" 'BEGIN { print (a > b ? a : b) }')
            done
            note "$side.$test.best" "$best"
        done
    done
done

echo
echo "operations/s, median (least to most); CPU s of all threads, load generator included"
for side in $SIDES; do
    for test in $TESTS; do
        for threads in $THREADS; do
            echo "$side, $test, $threads threads: $(of "$side.$test.$threads")/s, CPU s $(of "cpu.$side.$test.$threads" %.2f)"
        done
        echo "    with $last threads to the best of the same round: $(ratio "$side.$test.$last" "$side.$test.best")"
    done
done
echo "durability: survey and api: applied and journalled, on disk a few milliseconds later; socket: on disk when answered; wanted: 0.95"
