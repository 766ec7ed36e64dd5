# Sourced by every script here: a folder on the disk to measure, what was started and mounted and is always taken away,
# memory cgroups, and medians of what was noted. Absent: what is measured.
#
#   DISK=DIR    on the disk to measure (~/.cache/pandofs/figures); a folder is made in it, and removed
#   ROUNDS=5    every figure is the median of so many
#   SETTLE=300  seconds to wait at most until the load is below 0.5

set -eu
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/env.sh"
PANDO=${PANDO:-$CARGO_TARGET_DIR/release/pando}
NULL=${NULL:-$CARGO_TARGET_DIR/release/examples/null}
DISK=${DISK:-$CACHE/figures}
ROUNDS=${ROUNDS:-5}
SETTLE=${SETTLE:-300}
export NO_COLOR=1 LC_ALL=C
unset PANDO_CLUSTER
WORK='' pids=() groups=()

die() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# settle: waits until the machine has nothing to do, as far as its load average of one minute tells; says how long that took.
settle() {
    local since=$SECONDS
    until awk '{ exit !($1 < 0.5) }' /proc/loadavg || [ $((SECONDS - since)) -ge "$SETTLE" ]; do sleep 1; done
    echo "waited $((SECONDS - since)) s for a load below 0.5: it is $(cut -d' ' -f1-3 /proc/loadavg)"
}

# begin TITLE [PROGRAM...]: says what is run where, once the machine is quiet; WORK is the folder.
begin() {
    local title=$1 program
    shift
    [ "$(id -u)" = 0 ] || die "must run as root (mounts, cgroups, dropped caches)"
    for program in "$PANDO" "$@"; do
        command -v "$program" >/dev/null 2>&1 || die "$program is missing (cargo build --release -p cli; cargo build --release -p fuse --example null; apt install fio)"
    done
    mkdir -p "$DISK"
    [ "$(stat -f -c %T "$DISK")" != tmpfs ] || die "$DISK is memory, not a disk: set DISK"
    WORK=$(mktemp -d "$(cd "$DISK" && pwd)/run.XXXXXX")
    trap finish EXIT
    trap 'exit 130' INT TERM
    echo "$title"
    echo "date $(date -u +%FT%TZ), commit $(git -C "$ROOT" describe --always --dirty 2>/dev/null || echo none), rounds $ROUNDS"
    echo "machine: $(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(awk '/^MemTotal/ { print int($2 / 1048576) }' /proc/meminfo) GiB, Linux $(uname -r | cut -d- -f1), load $(cut -d' ' -f1-3 /proc/loadavg)"
    echo "disk: $(findmnt -n -o FSTYPE,SOURCE --target "$WORK")"
    settle
    echo
}

finish() {
    local code=$? each
    trap - EXIT INT TERM
    set +e
    cd /
    # What goes on until it is told.
    touch "$WORK/stop"
    for each in $(awk -v work="$WORK/" 'index($5, work) == 1 { print $5 }' /proc/self/mountinfo | sort -r); do
        timeout 120 "$PANDO" -q umount "$each" >/dev/null 2>&1 || umount -l "$each"
    done
    # A daemon ends by itself after its mount, a server in order when told; whoever has not by then is ended.
    for each in "${pids[@]}"; do kill "$each" 2>/dev/null; done
    for each in "${pids[@]}"; do wait_end "$each" 30 || end "$each"; done
    # A killed server leaves its link for others to find it.
    find /run/pando -maxdepth 1 -lname "$WORK/*" -delete 2>/dev/null
    for each in "${groups[@]}"; do rmdir "$each"; done
    [ -n "${KEEP:-}" ] && echo "kept: $WORK" || rm -rf --one-file-system "$WORK"
    [ $code = 0 ] || echo "$(basename "$0"): could not measure" >&2
    exit $code
}

# Processes.

# gone PID: a killed process is a zombie before its last thread has let go of its files and locks.
gone() {
    [ -d "/proc/$1" ] || return 0
    grep -qs '^State:[[:space:]]*Z' "/proc/$1/status" && [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -le 1 ]
}

# wait_end PID SECONDS
wait_end() {
    local i
    for ((i = 0; i < $2 * 20; i++)); do
        gone "$1" && return
        sleep 0.05
    done
    return 1
}

# end PID: kills what we started, and waits until it is gone.
end() {
    kill -9 "$1" 2>/dev/null || true
    until gone "$1"; do sleep 0.02; done
}

# until_true COMMAND...: asks until it succeeds, for at most a minute.
until_true() {
    local i
    for ((i = 0; i < 600; i++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    die "never true: $*"
}

# up DIR MNT [ARGS...]: mounts; SERVER is the process that serves.
up() {
    local word dir=$1 mnt=$2
    shift 2
    word=$("$PANDO" mount --format json "$@" "$dir" "$mnt")
    SERVER=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' <<<"$word")
    pids+=("$SERVER")
}

# down MNT: unmounts; returns when the daemon has ended.
down() {
    "$PANDO" -q umount "$1"
    wait_end "$SERVER" 600 || die "the daemon of $1 goes on"
}

# serve DIR [ARGS...]: serves it on its socket; SERVER is the process.
serve() {
    [ -e "$1/pando.fs" ] || "$PANDO" -q format "$1" >/dev/null
    "$PANDO" serve "$@" >"$WORK/serve.log" 2>&1 &
    SERVER=$!
    pids+=("$SERVER")
    disown "$SERVER"
    until_true "$PANDO" status --cluster "$1"
}

# proxy SOCKET TO MICROSECONDS: what goes through that socket is so much later, each way; PROXY is its process.
proxy() {
    rm -f "$1"
    "$PANDO" -q bench proxy --listen "unix:$1" --to "unix:$2" --delay-us "$3" >"$WORK/proxy.log" 2>&1 &
    PROXY=$!
    pids+=("$PROXY")
    disown "$PROXY"
    until_true test -S "$1"
}

# cpu PID: user and system seconds of all its threads.
cpu() { sed 's/^.*) //' "/proc/$1/stat" | awk -v hz="$(getconf CLK_TCK)" '{ print ($12 + $13) / hz }'; }

# minus A B, times A B, per A B
minus() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", a - b }'; }
per() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", a / b }'; }

# Memory cgroups, of version 2 or 1. Ours lie at the top, beside whatever else there is.

# group NAME BYTES: GROUP is its folder.
group() {
    local limit=memory.max
    if grep -qsw memory /sys/fs/cgroup/cgroup.controllers; then
        GROUP=/sys/fs/cgroup/pando-figures-$$-$1
        grep -qw memory /sys/fs/cgroup/cgroup.subtree_control || echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    else
        GROUP=/sys/fs/cgroup/memory/pando-figures-$$-$1 limit=memory.limit_in_bytes
    fi
    mkdir "$GROUP" || die "no memory cgroup can be made"
    groups+=("$GROUP")
    echo "$2" >"$GROUP/$limit"
}

# inside GROUP COMMAND...: run it as `(inside ...)`: the shell itself goes in.
inside() {
    echo "$BASHPID" >"$1/cgroup.procs"
    shift
    exec "$@"
}

drop_caches() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

# Figures.

# phase NAME COLUMN <OUTPUT: a column of the tables `pando bench` prints: 2 ops, 3 ops/s, 4 p50, 5 p99, 6 CPU seconds.
phase() { awk -v name="$1" -v column="$2" '$1 == name { sub(/us$/, "", $column); print $column }'; }

# field PHASE KEY <OUTPUT: a value of that phase in what `pando bench --json` prints: ops_per_second, p50_us, p99_us, p999_us, max_us.
field() { tr '{}' '\n\n' | grep -F "\"name\":\"$1\"" | tail -n 1 | sed -n "s/.*\"$2\":\([0-9.e-]*\).*/\1/p"; }

# note KEY VALUE: one more value of that key.
note() {
    [ -n "$2" ] || die "no value for $1"
    echo "$2" >>"$WORK/note.$1"
}

# median KEY
median() {
    sort -g "$WORK/note.$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# of KEY [FORMAT]: "median (least to most)".
of() {
    printf "${2:-%.0f} (${2:-%.0f} to ${2:-%.0f})" "$(median "$1")" "$(sort -g "$WORK/note.$1" | head -n 1)" "$(sort -g "$WORK/note.$1" | tail -n 1)"
}

# ratio KEY KEY: of the medians, and the range over the rounds.
ratio() {
    paste "$WORK/note.$1" "$WORK/note.$2" | awk -v middle="$(per "$(median "$1")" "$(median "$2")")" '
        { r = $1 / $2; if (NR == 1 || r < least) least = r; if (NR == 1 || r > most) most = r }
        END { printf "%.2f (%.2f to %.2f)", middle, least, most }'
}

# sides ROUND WORD...: these, or in each second round from the last to the first.
sides() {
    local odd=$(($1 % 2))
    shift
    if [ $odd = 1 ]; then echo "$*"; else printf '%s\n' "$@" | tac | paste -sd' '; fi
}
