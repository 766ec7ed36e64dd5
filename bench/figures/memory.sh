#!/usr/bin/env bash
# What a cached file costs the rank: growth of the process's anonymous memory over FILES creations with names of 20 bytes.
#
#   FILES=5000000 DIRS=500    wanted: at most 200 bytes
#   CAPS=                     1: one client keeps each of them; wanted: at most 220
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-5000000} DIRS=${DIRS:-500} CAPS=${CAPS:+--caps}
WANTED=${CAPS:+220}

begin "memory: pando bench memory --files $FILES --dirs $DIRS $CAPS"
for ((round = 1; round <= ROUNDS; round++)); do
    rm -rf "$WORK/data"
    "$PANDO" bench memory "$WORK/data" --files "$FILES" --dirs "$DIRS" $CAPS | tee "$WORK/out"
    note bytes "$(sed -n 's/.*, \([0-9.]*\) bytes per file/\1/p' "$WORK/out")"
done

echo
echo "bytes per file, everything of the process counted: $(of bytes %.1f); wanted: at most ${WANTED:-200}"
