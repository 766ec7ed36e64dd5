# Sourced by prepare.sh and run.sh: the systems that are compared. For each NAME:
#
#   NAME_missing      what it lacks on this machine, as one line; nothing when it can run
#   NAME_version      one line
#   NAME_durability   what an answer promises, one line
#   NAME_up           starts it on the empty disk at BASE, mounts it at MNT, sets CLIENT; nonzero when it cannot
#   NAME_tree         only if it needs that: makes the directory that it is given, in which the processes' trees (of `np`) will be
#   NAME_requests     only of several metadata servers: NAME REQUESTS of each, one a line
#
# Absent: installing (prepare.sh), ending (lib.sh: unmounting and ending the processes is the same for all).

# Run when they are named only.
NAMED=(pando2 ceph2)
SYSTEMS=(pando null tmpfs passthrough ceph juicefs moosefs "${NAMED[@]}")
PEERS=$CACHE/peers
PANDO=${PANDO:-$CARGO_TARGET_DIR/release/pando}
NULL=$CARGO_TARGET_DIR/release/examples/null
PASSTHROUGH=$PEERS/passthrough_ll
PASSTHROUGH_PACKAGES=(libfuse3-dev gcc pkg-config libc6-dev)
JUICEFS_VERSION=1.3.1
JUICEFS=$PEERS/juicefs-$JUICEFS_VERSION/juicefs
CEPH_PACKAGES=(ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse ceph-common)
MOOSEFS_PACKAGES=(moosefs-master moosefs-chunkserver moosefs-client)
# An address of documentation's own, given to the loopback of run.sh's network: MooseFS refuses 127.0.0.0/8.
ADDRESS=192.0.2.1

# lacks PROGRAM...: says the first that is not there.
lacks() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null 2>&1 && continue
        echo "$program is missing"
        return
    done
}

# PandoFS: rank and client in the process of the mount.

pando_missing() { lacks "$PANDO"; }
pando_version() { "$PANDO" --version; }
pando_durability() {
    echo "metadata answered when applied and journalled, synced to disk a few milliseconds later; file data synced by fsync only"
}
pando_up() {
    local word
    if ! word=$("$PANDO" mount --format json "$BASE/data" "$MNT" 2>"$BASE/mount.log"); then
        complain "pando mount: $(cat "$BASE/mount.log")"
        return 1
    fi
    CLIENT=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' <<<"$word")
    [ -n "$CLIENT" ] || return 1
    ours "$CLIENT"
}

# PandoFS with two ranks in a server, and a mount on its socket. The processes' trees are divided among the ranks.

pando2_missing() { lacks "$PANDO" setfattr python3; }
pando2_version() { echo "$("$PANDO" --version), two ranks"; }
pando2_durability() {
    echo "changes answered before they are on disk, synced a few milliseconds later, and made again by the client if the server dies; file data synced by fsync only"
}
pando2_serves() { [ "$(grep -c ' state up:active ' < <(timeout 20 "$PANDO" fs get pandofs --cluster "$BASE/data" 2>/dev/null))" = "$1" ]; }
pando2_up() {
    local word
    step setup "$PANDO" -q format "$BASE/data" || return 1
    begin serve "$PANDO" serve "$BASE/data" --ranks 2
    until_true 60 "server" pando2_serves 1 || return 1
    step setup "$PANDO" fs set pandofs max_mds 2 --cluster "$BASE/data" || return 1
    until_true 60 "second rank" pando2_serves 2 || return 1
    if ! word=$("$PANDO" mount --format json "unix:$BASE/data/pando.sock" "$MNT" 2>"$BASE/mount.log"); then
        complain "pando mount: $(cat "$BASE/mount.log")"
        return 1
    fi
    CLIENT=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' <<<"$word")
    [ -n "$CLIENT" ] || return 1
    ours "$CLIENT"
}
# The second rank has its half of the slots: until then each of them moves under the load.
pando2_shares() {
    timeout 20 "$PANDO" --format json fs get pandofs --cluster "$BASE/data" 2>/dev/null | python3 -c '
import json, sys
rows = json.load(sys.stdin)["mdsmap"]["slots"]
sys.exit(sum(row["slots"] for row in rows if row["rank"] == 1) < 2048 or any(row["moving"] for row in rows))'
}
pando2_tree() { divided "$1" && until_true 60 "half of the slots with the second rank" pando2_shares; }
pando2_requests() { asked 0 1 timeout 20 "$PANDO" --cluster "$BASE/data" --format json; }

# asked NAME NAME COMMAND...: of both; Ceph answers `tell mds.NAME perf dump` with the same keys.
asked() {
    local name names=("$1" "$2")
    shift 2
    for name in "${names[@]}"; do
        "$@" tell "mds.$name" perf dump | python3 -c 'import json, sys; print(sys.argv[1], json.load(sys.stdin)["mds"]["request"])' "$name" || return 1
    done
}

# divided DIR: what is made in it is divided among the ranks; the same words for CephFS and for us.
divided() { mkdir -p "$1" && setfattr -n ceph.dir.pin.distributed -v 1 "$1"; }

# The null responder: answers from a hash table through the transport of our mount. What FUSE itself allows.

null_missing() { lacks "$NULL"; }
null_version() { echo "null responder of crate fuse, io_uring"; }
null_durability() { echo "none: keeps nothing"; }
null_up() {
    begin null "$NULL" "$MNT" uring
    CLIENT=$PID
    until_true 30 "mount" mounted "$MNT"
}

# tmpfs: what the kernel does by itself.

tmpfs_missing() { lacks mount; }
tmpfs_version() { echo "Linux $(uname -r | cut -d- -f1)"; }
tmpfs_durability() { echo "none: memory"; }
tmpfs_up() { mount -t tmpfs peer "$MNT"; }

# libfuse's example that hands everything on to a tmpfs. It looks inodes up in a list and keeps a descriptor for each, so it is compared
# with up to 18,000 files (--items 45).

passthrough_missing() { lacks "$PASSTHROUGH"; }
passthrough_version() { echo "passthrough_ll of libfuse $(pkg-config --modversion fuse3), clone_fd, cache=auto, timeout=1, on tmpfs"; }
passthrough_durability() { echo "none: memory"; }
passthrough_up() {
    mkdir "$BASE/tmpfs" && mount -t tmpfs peer "$BASE/tmpfs" || return 1
    begin passthrough bash -c 'ulimit -n 1048576; exec "$@"' - \
        "$PASSTHROUGH" -f -o "source=$BASE/tmpfs,cache=auto,timeout=1,clone_fd" "$MNT"
    CLIENT=$PID
    until_true 30 "mount" mounted "$MNT"
}

# CephFS: one of each daemon, one copy, BlueStore in a file, ceph-fuse with its default caches.

ceph_missing() { lacks ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse ceph monmaptool; }
ceph_version() { ceph --version; }
ceph_durability() {
    echo "metadata answered before the MDS journal is written (mds_early_reply); file data written back from the client's cache, durable once the OSD has it"
}
ceph_conf() { # FSID
    cat <<CONF
[global]
fsid = $1
mon host = [v2:127.0.0.1:3300,v1:127.0.0.1:6789]
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
ms bind ipv6 = false
# Nobody else is in this network.
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = true
mon warn on insecure global id reclaim allowed = false
keyring = $BASE/keyring
mon data = $BASE/mon
mgr data = $BASE/mgr
osd data = $BASE/osd
mds data = $BASE/mds
run dir = $BASE
log file = $BASE/\$name.log
crash dir = $BASE/crash
admin socket =
# One copy, and no second thoughts about the number of placement groups during a run.
mon allow pool size one = true
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = bluestore
# A file with holes; the default is larger than the disk.
bluestore block size = 8589934592
[mds]
# Without one it does not answer "tell".
admin socket = $BASE/\$name.asok
CONF
}
ceph_is() { grep -q "$1" < <(timeout 20 ceph -c "$BASE/ceph.conf" "${@:2}" 2>/dev/null); }
ceph_up() { ceph_start; }
# ceph_start: all of it, with one metadata server.
ceph_start() {
    local conf=$BASE/ceph.conf fsid osd
    fsid=$(cat /proc/sys/kernel/random/uuid) osd=$(cat /proc/sys/kernel/random/uuid)
    ceph_conf "$fsid" >"$conf"
    mkdir "$BASE/mon" "$BASE/mgr" "$BASE/osd" "$BASE/mds" "$BASE/crash" && touch "$BASE/keyring" || return 1
    step setup monmaptool --create --fsid "$fsid" --addv a '[v2:127.0.0.1:3300,v1:127.0.0.1:6789]' "$BASE/monmap" || return 1
    step setup ceph-mon -c "$conf" -i a --mkfs --monmap "$BASE/monmap" || return 1
    begin mon ceph-mon -c "$conf" -i a -f
    until_true 60 "monitor" ceph_is "$fsid" fsid || return 1
    begin mgr ceph-mgr -c "$conf" -i x -f
    step setup ceph -c "$conf" osd new "$osd" 0 || return 1
    step setup ceph-osd -c "$conf" -i 0 --mkfs --osd-uuid "$osd" || return 1
    begin osd ceph-osd -c "$conf" -i 0 -f
    until_true 60 "object store" ceph_is '1 up' osd stat || return 1
    step setup ceph -c "$conf" osd pool create meta 16 || return 1
    step setup ceph -c "$conf" osd pool create data 16 || return 1
    step setup ceph -c "$conf" fs new cephfs meta data || return 1
    begin mds ceph-mds -c "$conf" -i a -f
    until_true 60 "metadata server" ceph_is up:active mds stat || return 1
    begin fuse ceph-fuse -c "$conf" --id admin -f "$MNT"
    CLIENT=$PID
    until_true 60 "mount" mounted "$MNT"
}

# CephFS with two active metadata servers.

ceph2_missing() { lacks ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse ceph monmaptool setfattr python3; }
ceph2_version() { echo "$(ceph --version), two active MDS"; }
ceph2_durability() { ceph_durability; }
ceph2_up() {
    local conf=$BASE/ceph.conf
    ceph_start || return 1
    begin mds2 ceph-mds -c "$conf" -i b -f
    step setup ceph -c "$conf" fs set cephfs max_mds 2 || return 1
    until_true 60 "second metadata server" ceph_is '1=[^,]*up:active' mds stat
}
# Parts of the directory go to the second one by and by, and none while it is empty: until they rest they would move under the load, and all is
# served by the first.
ceph2_parts() {
    timeout 20 ceph -c "$BASE/ceph.conf" tell mds.b get subtrees 2>/dev/null | python3 -c '
import json, sys
print(*sorted(one["dir"]["dirfrag"] for one in json.load(sys.stdin) if one["is_auth"] and one["dir"]["path"].startswith(sys.argv[1])))' "$1"
}
ceph2_shares() { local parts; parts=$(ceph2_parts "$1") && [ -n "$parts" ] && sleep 10 && [ "$(ceph2_parts "$1")" = "$parts" ]; }
ceph2_tree() {
    local task
    divided "$1" || return 1
    for ((task = 0; task < np; task++)); do mkdir -p "$1/mdtest_tree.$task.0" || return 1; done
    until_true 180 "part of the directory at rest with the second metadata server" ceph2_shares "${1#"$MNT"}"
}
ceph2_requests() { asked a b timeout 20 ceph -c "$BASE/ceph.conf"; }

# JuiceFS: Badger in the process of the mount, objects as files, default caches.

juicefs_missing() { lacks "$JUICEFS"; }
juicefs_version() { "$JUICEFS" version; }
juicefs_durability() {
    echo "metadata in Badger's log without sync (SyncWrites off); file data put as a file when it is closed, not synced"
}
juicefs_up() {
    step setup "$JUICEFS" format --storage file --bucket "$BASE/objects/" "badger://$BASE/meta" peer || return 1
    begin mount "$JUICEFS" mount --no-usage-report --no-syslog --cache-dir "$BASE/cache" "badger://$BASE/meta" "$MNT"
    CLIENT=$PID
    until_true 60 "mount" mounted "$MNT"
}

# MooseFS: master, one chunkserver, one copy, default caches.

moosefs_missing() { lacks mfsmaster mfschunkserver mfsmount mfssetgoal; }
moosefs_version() { echo "MooseFS $(mfsmaster -v 2>&1 | sed 's/^version: //')"; }
moosefs_durability() {
    echo "metadata change log written in the background, not synced (CHANGELOG_SAVE_MODE 0); file data at the chunkserver when a file is closed, not synced (HDD_FSYNC_BEFORE_CLOSE 0)"
}
moosefs_has_room() { [ "$(timeout 10 stat -f -c %b "$MNT")" -gt 0 ]; }
moosefs_up() {
    mkdir "$BASE/master" "$BASE/chunkserver" "$BASE/chunks" || return 1
    # What a master without files starts from.
    printf 'MFSM NEW' >"$BASE/master/metadata.mfs"
    echo "$ADDRESS/32 / rw,alldirs,admin,maproot=0:0" >"$BASE/exports"
    : >"$BASE/topology"
    echo "$BASE/chunks" >"$BASE/disks"
    cat >"$BASE/master.cfg" <<CONF
WORKING_USER = root
WORKING_GROUP = root
DISABLE_OOM_KILLER = 0
DATA_PATH = $BASE/master
EXPORTS_FILENAME = $BASE/exports
TOPOLOGY_FILENAME = $BASE/topology
MATOML_LISTEN_HOST = $ADDRESS
MATOCS_LISTEN_HOST = $ADDRESS
MATOCL_LISTEN_HOST = $ADDRESS
CONF
    cat >"$BASE/chunkserver.cfg" <<CONF
WORKING_USER = root
WORKING_GROUP = root
DISABLE_OOM_KILLER = 0
DATA_PATH = $BASE/chunkserver
HDD_CONF_FILENAME = $BASE/disks
MASTER_HOST = $ADDRESS
CSSERV_LISTEN_HOST = $ADDRESS
CONF
    begin master mfsmaster -c "$BASE/master.cfg" -f start
    until_true 60 "master" bash -c "exec 3<>/dev/tcp/$ADDRESS/9421" || return 1
    begin chunkserver mfschunkserver -c "$BASE/chunkserver.cfg" -f start
    begin mount mfsmount "$MNT" -H "$ADDRESS" -f -o mfsallowoomkiller
    CLIENT=$PID
    until_true 60 "mount" mounted "$MNT" || return 1
    until_true 60 "chunkserver" moosefs_has_room || return 1
    # The default wants two copies, which one chunkserver cannot keep.
    step setup mfssetgoal 1 "$MNT"
}
