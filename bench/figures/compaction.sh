#!/usr/bin/env bash
# How much space the data takes for what is live, after nine of ten small files were removed under load: files of 4 KiB are written
# through a mount, every one whose number does not end in 0 is removed while another process creates and stats empty files, and
# for a minute from then on the space of DIR/data is compared to the bytes of the files that are left.
#
#   FILES=1000000 REMOVERS=2 SECONDS_AFTER=60    wanted: at most 1.3 within 60 s
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-1000000} REMOVERS=${REMOVERS:-2} SECONDS_AFTER=${SECONDS_AFTER:-60}

begin "compaction: $FILES files of 4 KiB, 9 of 10 removed by $REMOVERS processes under load"

# load: creates and stats, until `stop` is there.
load() {
    until [ -e "$WORK/stop" ]; do
        "$PANDO" bench mdtest -F -C -T -r -n 5000 -u --np 1 -d "$WORK/mnt/load" >>"$WORK/load"
    done
}

for ((round = 1; round <= ROUNDS; round++)); do
    rm -rf "$WORK/data" "$WORK/stop" "$WORK/load"
    up "$WORK/data" "$WORK/mnt"
    "$PANDO" bench mdtest -F -C -w 4096 -n $((FILES / 4)) -z 1 -b 20 -L -u --np 4 -d "$WORK/mnt/files" --watch-pid "$SERVER" >"$WORK/out"
    echo "round $round: $(grep ^file-create "$WORK/out")"
    sync -f "$WORK/mnt"
    echo "    full: $(du -sB1M "$WORK/data/data" | cut -f1) MiB for $((FILES * 4096 >> 20)) MiB"
    load & load=$!
    before=$(cpu "$SERVER") start=$EPOCHREALTIME
    find "$WORK"/mnt/files/*/* -mindepth 1 -maxdepth 1 -type d -print0 |
        xargs -0 -P "$REMOVERS" -I{} find {} -type f -name '*[1-9]' -delete
    took=$(minus "$EPOCHREALTIME" "$start")
    live=$(find "$WORK/mnt/files" -type f -printf '%s\n' | awk '{ sum += $1 } END { printf "%d", sum }')
    [ "$live" -gt 0 ] || die "nothing is left"
    echo "    removed in $took s; live: $((live >> 20)) MiB"
    end=$SECONDS reached=
    while :; do
        room=$(du -sB1 "$WORK/data/data" | cut -f1)
        factor=$(per "$room" "$live")
        echo "    $((SECONDS - end)) s after the last removal: $((room >> 20)) MiB, $factor of what is live"
        if [ -z "$reached" ] && awk -v f="$factor" 'BEGIN { exit !(f <= 1.3) }'; then reached=$((SECONDS - end)); fi
        [ $((SECONDS - end)) -lt "$SECONDS_AFTER" ] || break
        sleep 5
    done
    touch "$WORK/stop"
    wait $load
    note factor "$factor"
    note reached "${reached:-$((SECONDS_AFTER * 10))}"
    note cpu "$(minus "$(cpu "$SERVER")" "$before")"
    note load "$(phase file-create 3 <"$WORK/load" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')"
    down "$WORK/mnt"
done

echo
echo "data / live $SECONDS_AFTER s after the last removal: $(of factor %.2f); 1.3 reached after $(of reached) s ($((SECONDS_AFTER * 10)): not)"
echo "beside it: $(of load) creates/s of the other process; CPU s of the daemon's threads $(of cpu %.1f)"
echo "durability: removals applied and journalled, on disk a few milliseconds later; wanted: at most 1.3 within 60 s"
