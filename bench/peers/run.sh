#!/usr/bin/env bash
# Runs one mdtest on PandoFS, on its peers and on the null responder, all in one go on one disk: each round starts every
# system once, fresh, on an ext4 just made, and takes it away again. Prints medians and ratios; keeps the raw output.
# Needs root, and `make peers` before.
#
#   bench/peers/run.sh [--rounds N] [--only NAME,...] [--dir DIR] [--out DIR] [--items N] [--np N] [--seconds N]
#                      [--disk GIB] [--write BYTES]
#
#   --rounds N     rounds (5)
#   --only LIST    of pando,null,tmpfs,passthrough,ceph,juicefs,moosefs (all that are installed), pando2,ceph2
#   --dir DIR      the image with that ext4 is made in it, and removed (~/.cache/pandofs/peers)
#   --out DIR      raw output and result (a folder with the time as name in ~/.cache/pandofs/peers/results)
#   --items N      files per directory and process; there are 100 directories for each process (100)
#   --np N         processes (4)
#   --seconds N    repeat the mdtest on a system until so many seconds have passed (0: once)
#   --disk GIB     size of the image (16)
#   --write BYTES  written to each file after its creation (4096)
set -eu
. "$(dirname "$0")/../../scripts/env.sh"
. "$ROOT/bench/peers/systems.sh"
. "$ROOT/bench/peers/lib.sh"

usage() {
    sed -n '6,17s/^#  \{0,1\}//p' "$0" >&2
    exit 2
}
rounds=5 only='' dir=$PEERS out='' items=100 np=4 seconds=0 disk=16 write=4096
arguments=("$@")
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --rounds) rounds=$2 ;;
        --only) only=$2 ;;
        --dir) dir=$2 ;;
        --out) out=$2 ;;
        --items) items=$2 ;;
        --np) np=$2 ;;
        --seconds) seconds=$2 ;;
        --disk) disk=$2 ;;
        --write) write=$2 ;;
        *) usage ;;
    esac
    shift 2
done
for number in "$rounds" "$items" "$np" "$seconds" "$disk" "$write"; do [[ $number =~ ^[0-9]+$ ]] || usage; done

[ "$(id -u)" = 0 ] || die "must run as root (it mounts, and makes a network of its own)"
[ -e /dev/fuse ] || die "/dev/fuse is missing: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
for program in ip mkfs.ext4 losetup python3; do
    command -v $program >/dev/null 2>&1 || die "$program is missing: make peers"
done
# A network with nothing but a loopback: no port is taken by somebody else's server, and no server is reachable.
if [ -z "${PEERS_APART:-}" ]; then
    PEERS_APART=1 exec unshare --net -- "$0" "${arguments[@]}"
fi
ip link set lo up && ip address add "$ADDRESS/32" dev lo || die "cannot set up the loopback"

systems=()
for name in ${only//,/ }; do
    [[ " ${SYSTEMS[*]} " == *" $name "* ]] || die "no system $name; there are: ${SYSTEMS[*]}"
    lack=$("${name}_missing")
    [ -z "$lack" ] || die "$name: $lack: make peers"
    systems+=("$name")
done
if [ -z "$only" ]; then
    for name in "${SYSTEMS[@]}"; do
        [[ " ${NAMED[*]} " != *" $name "* ]] || continue
        lack=$("${name}_missing")
        if [ -z "$lack" ]; then systems+=("$name"); else say "$name is left out: $lack (make peers)"; fi
    done
fi
[ -x "$PANDO" ] || die "$PANDO is missing, which has the mdtest: make peers"

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
[[ $dir =~ ^[A-Za-z0-9_./+-]+$ ]] || die "--dir: not every peer's configuration can name $dir"
[[ $(stat -f -c %T "$dir") != tmpfs ]] || die "--dir: $dir is memory, not a disk"
out=${out:-$PEERS/results/$(date +%Y-%m-%d-%H%M%S)}
mkdir -p "$out"
[ -z "$(ls -A "$out")" ] || die "--out: $out is not empty"
WORK=$(mktemp -d "$dir/run.XXXXXX")
IMAGE=$WORK/disk.img BASE=$WORK/disk MNT=$WORK/mnt
mkdir "$BASE" "$MNT"

finish() {
    trap - EXIT
    trap '' INT TERM
    # Whatever fails, the rest is taken away.
    set +e
    cd /
    down
    rm -f "$IMAGE"
    rmdir "$MNT" "$BASE" "$WORK"
}
trap finish EXIT
trap 'complain interrupted; exit 1' INT TERM

# measure ROUND SYSTEM: the same two commands for every system, as often as --seconds wants them. What the second one stats it has
# seen before.
measure() {
    local start=$SECONDS turn=1 name=$out/$1-$2 mdtest
    mdtest=("$PANDO" bench mdtest -F -L -w "$write" -z 2 -b 10 -I "$items" -u --np "$np" -d "$MNT/mdtest" --format json)
    [ -z "$CLIENT" ] || mdtest+=(--watch-pid "$CLIENT")
    ticks >"$name.before"
    ! declare -F "$2_requests" >/dev/null || "$2_requests" >"$name.asked" 2>"$name.stderr" || return 1
    while :; do
        # As the mdtest makes it, if it is not there.
        if declare -F "$2_tree" >/dev/null; then "$2_tree" "$MNT/mdtest/test-dir.0-0" 2>"$name.stderr" || return 1; fi
        "${mdtest[@]}" -C -T >"$name-$turn.json" 2>"$name.stderr" || return 1
        "${mdtest[@]}" -T -E -r >"$name-$turn.again" 2>"$name.stderr" || return 1
        [ $((SECONDS - start)) -lt "$seconds" ] || break
        turn=$((turn + 1))
    done
    ticks >"$name.after"
    if [ -e "$name.asked" ]; then
        "$2_requests" >"$name.requests" 2>"$name.stderr" || return 1
        # Since before.
        paste -d' ' "$name.asked" "$name.requests" | awk '{ print $1, $4 - $2 }' >"$name.served"
        rm "$name.asked" "$name.requests"
    fi
    [ -s "$name.stderr" ] || rm -f "$name.stderr"
}

# one ROUND SYSTEM
one() {
    local start=$SECONDS ready
    say "round $1 of $rounds: $2"
    fresh_disk || die "cannot make the disk for $2"
    if "$2_up" && ready=$SECONDS && measure "$1" "$2"; then
        down
        say "    started in $((ready - start)) s, done after $((SECONDS - start)) s"
        return
    fi
    complain "$2 failed in round $1; logs in $out/$1-$2-logs"
    mkdir -p "$out/$1-$2-logs"
    find "$BASE" -xdev -name '*.log' -size +0 -exec cp {} "$out/$1-$2-logs" \; || true
    tail -n 5 "$out/$1-$2-logs"/*.log "$out/$1-$2.stderr" >&2 2>/dev/null || true
    rm -f "$out/$1-$2"-*.json "$out/$1-$2"-*.again "$out/$1-$2".{before,after,asked,requests,served}
    down
    return 1
}

{
    echo "date: $(date -u +%FT%TZ)"
    echo "commit: $(git -C "$ROOT" describe --always --dirty 2>/dev/null || echo none)"
    echo "machine: $(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(awk '/^MemTotal/ { print int($2 / 1048576) }' /proc/meminfo) GiB, Linux $(uname -r | cut -d- -f1)"
    echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
    echo "disk: ext4 in an image of $disk GiB on $(findmnt -n -o FSTYPE,SOURCE --target "$WORK" 2>/dev/null || stat -f -c %T "$WORK")"
    echo "commands: pando bench mdtest -F -L -w $write -z 2 -b 10 -I $items -u --np $np, with -C -T, then with -T -E -r; rounds $rounds, at least $seconds s each"
} | tee "$out/environment"
for name in "${systems[@]}"; do
    printf '%s\t%s\t%s\n' "$name" "$("${name}_version")" "$("${name}_durability")" >>"$out/systems"
done

make_image "$disk" || die "cannot write an image of $disk GiB in $WORK"
failed=0
for ((round = 1; round <= rounds; round++)); do
    for name in "${systems[@]}"; do
        one "$round" "$name" || failed=1
    done
done
echo
python3 "$ROOT/bench/peers/report.py" "$out" "$(getconf CLK_TCK)" | tee "$out/result"
echo "raw output: $out"
exit $failed
