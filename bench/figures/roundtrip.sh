#!/usr/bin/env bash
# Changes one after the other by one program through a mount on a server's socket, without and with a round trip of DELAY_US on the way: `rm -r` of a
# directory, and `tar x` of a tree. Modes:
#
#   nowsync    the default: what the mount answers by itself, if it may, is on disk later
#   early      the server gives mounts no inode numbers to make files with (mds_client_delegate_inos_pct = 0): each change is a round trip
#   wsync      -o wsync: as early, and answered when it is on disk
#
#   FILES=10000 DELAY_US=1000 TAR_FILES=20000 TAR_BYTES=1024 MODES="nowsync early wsync"    TAR_FILES=0 leaves tar out
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-10000} DELAY_US=${DELAY_US:-1000} TAR_FILES=${TAR_FILES:-20000} TAR_BYTES=${TAR_BYTES:-1024} MODES=${MODES:-nowsync early wsync}

begin "roundtrip: pando bench rm --files $FILES, and tar x of $TAR_FILES files, on a mount of unix:SOCK; round trip 0 and $DELAY_US us" tar
: >"$WORK/plain.toml"
echo "mds_client_delegate_inos_pct = 0" >"$WORK/early.toml"
if [[ " $MODES " == *" early "* ]] && ! "$PANDO" config ls --conf "$WORK/early.toml" >/dev/null 2>"$WORK/out"; then
    echo "left out: early, because this server refuses its option: $(head -n 1 "$WORK/out")"
    MODES=$(tr ' ' '\n' <<<"$MODES" | grep -vx early | paste -sd' ')
fi
if [ "$TAR_FILES" != 0 ]; then
    mkdir "$WORK/tree"
    for ((i = 0; i < TAR_FILES; i++)); do
        [ $((i % 200)) != 0 ] || mkdir "$WORK/tree/$((i / 200))"
        head -c "$TAR_BYTES" /dev/zero >"$WORK/tree/$((i / 200))/$i"
    done
    tar cf "$WORK/tree.tar" -C "$WORK" tree
fi

# around MODE DELAY COMMAND...: with a server, perhaps a proxy, and a mount at WORK/mnt.
around() {
    local mode=$1 delay=$2 conf=$WORK/plain.toml at=$WORK/data/pando.sock server words=()
    shift 2
    [ "$mode" != early ] || conf=$WORK/early.toml
    [ "$mode" != wsync ] || words=(-o wsync)
    rm -rf "$WORK/data"
    serve "$WORK/data" --conf "$conf"
    server=$SERVER
    if [ "$delay" != 0 ]; then
        proxy "$WORK/proxy.sock" "$at" $((delay / 2))
        at=$WORK/proxy.sock
    fi
    up "unix:$at" "$WORK/mnt" "${words[@]}"
    "$@" "$mode.$delay" "$server"
    down "$WORK/mnt"
    [ "$delay" = 0 ] || end "$PROXY"
    kill "$server"
    wait_end "$server" 120 || die "the server does not end"
}

# removed KEY SERVER
removed() {
    "$PANDO" bench rm "$WORK/mnt" --files "$FILES" --json >"$WORK/out"
    note "rm.$1" "$(field "rm -r" seconds <"$WORK/out")"
    note "cpu.rm.$1" "$(awk -v a="$(cpu "$2")" -v b="$(cpu "$SERVER")" 'BEGIN { print a + b }')"
    echo "rm, $1: $(tail -n 1 "$WORK/note.rm.$1") s"
}

# unpacked KEY SERVER
unpacked() {
    local start=$EPOCHREALTIME
    tar xf "$WORK/tree.tar" -C "$WORK/mnt"
    note "tar.$1" "$(minus "$EPOCHREALTIME" "$start")"
    note "cpu.tar.$1" "$(awk -v a="$(cpu "$2")" -v b="$(cpu "$SERVER")" 'BEGIN { print a + b }')"
    echo "tar, $1: $(tail -n 1 "$WORK/note.tar.$1") s"
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round:"
    for mode in $(sides $round $MODES); do
        for delay in 0 "$DELAY_US"; do around "$mode" "$delay" removed; done
        if [ "$TAR_FILES" != 0 ] && [ "$mode" != wsync ]; then around "$mode" "$DELAY_US" unpacked; fi
    done
done

echo
echo "seconds, median (least to most); CPU s of server and mount since they began, the making of the files included"
for mode in $MODES; do
    for delay in 0 "$DELAY_US"; do
        echo "rm -r of $FILES files, $mode, round trip $delay us: $(of "rm.$mode.$delay" %.2f), CPU s $(of "cpu.rm.$mode.$delay" %.1f), to nowsync $(ratio "rm.$mode.$delay" "rm.${MODES%% *}.$delay")"
    done
    if [ "$TAR_FILES" != 0 ] && [ "$mode" != wsync ]; then
        echo "tar x of $TAR_FILES files, $mode, round trip $DELAY_US us: $(of "tar.$mode.$DELAY_US" %.2f), CPU s $(of "cpu.tar.$mode.$DELAY_US" %.1f), to nowsync $(ratio "tar.$mode.$DELAY_US" "tar.${MODES%% *}.$DELAY_US")"
    fi
done
echo "durability: wsync: on disk when answered; nowsync and early: on disk after a sync"
