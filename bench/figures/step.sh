#!/usr/bin/env bash
# The rank machine alone, stepped by one thread on one CPU: planning, applying and encoding the journal's entries, with a server's
# configuration. The journal that stands around it counts bytes and drops them, the store is a table in memory whose time is not
# counted, the requests are made outside the measured time. Not in it: sockets and their codec, locks and wake-ups, files, the store's work.
# `plain` answers leave at once, as in the server's process; `held` ones when the journal says durable, as over a socket.
#
#   FILES=1000000 DIRS=100 BATCH=32    requests from one word of the journal to the next    wanted: create 1000000/s, getattr 3000000/s
#   CPU=1 ORDER=                       ORDER=--random: lookup, getattr and unlink in an order without locality
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-1000000} DIRS=${DIRS:-100} BATCH=${BATCH:-32} CPU=${CPU:-1} ORDER=${ORDER:-}

begin "step: taskset -c $CPU pando bench step --files $FILES --dirs $DIRS --batch $BATCH $ORDER, plain and --held" taskset
for ((round = 1; round <= ROUNDS; round++)); do
    for side in $(sides $round plain held); do
        words=()
        [ $side = plain ] || words+=(--held)
        [ -z "$ORDER" ] || words+=("$ORDER")
        taskset -c "$CPU" "$PANDO" bench step --files "$FILES" --dirs "$DIRS" --batch "$BATCH" "${words[@]}" >"$WORK/out"
        echo "round $round, $side:"
        cat "$WORK/out"
        for test in create lookup getattr unlink; do
            note "$side.$test" "$(phase $test 3 <"$WORK/out")"
            note "cpu.$side.$test" "$(phase $test 6 <"$WORK/out")"
            note "bytes.$side.$test" "$(sed -n "s/^$test: .* replies, \([0-9]*\) bytes.*/\1/p" "$WORK/out")"
        done
    done
done

echo
echo "one thread on one CPU; median (least to most); CPU s with the making of the requests"
for side in plain held; do
    for test in create lookup getattr unlink; do
        echo "$side, $test: $(of $side.$test)/s, CPU s $(of cpu.$side.$test %.2f), journal $(per "$(median bytes.$side.$test)" "$FILES") bytes each"
    done
done
echo "durability: none; wanted: create 1000000/s, getattr 3000000/s"
