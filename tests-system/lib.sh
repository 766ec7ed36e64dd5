# Sourced by every test here: a folder of its own, mounts that are always taken away, processes that are
# ended by their number only, and the lines a run prints:
#
#   PASS name            FAIL name: reason            result: N passed, N failed (last line)
#
# Absent: tests.

set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../scripts/env.sh"
PANDO=${PANDO:-$CARGO_TARGET_DIR/release/pando}
export NO_COLOR=1
unset PANDO_CLUSTER
# Seconds after which a kernel keeps no name and no attribute of a mount over a socket any more (KEEP_MS in crates/proto/src/caps.rs).
KEEP_OVER=2.5

# Spaces in the path on purpose: somebody's mount point has them.
WORK=$(mktemp -d "${TMPDIR:-/tmp}/pando test.XXXXXX") || exit 1
# Other users must reach the mounts in it.
chmod 755 "$WORK"
passed=0 failed=0
pids=() loops=()

pass() { echo "PASS $1"; passed=$((passed + 1)); }
fail() { echo "FAIL $1: ${2:-}"; failed=$((failed + 1)); }

# check NAME COMMAND...: the command's success decides; what it printed is shown when it failed.
check() {
    local name=$1
    shift
    if "$@" >"$WORK/out" 2>&1; then pass "$name"; else
        fail "$name" "exit $? of: $*"
        tail -n 15 "$WORK/out" | sed 's/^/    /'
    fi
}

# same NAME WANTED FOUND
same() {
    if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "wanted '$2', found '$3'"; fi
}

die() {
    fail "${TEST:-setup}" "$1"
    exit 1
}

finish() {
    local path
    trap - EXIT INT TERM
    cd /
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    # Deepest first; whatever is ours below the folder, dead or alive.
    while IFS= read -r path; do
        "$PANDO" -q umount --force "$path" >/dev/null 2>&1 || umount -l "$path" 2>/dev/null
    done < <(mounted_below | sort -r)
    for path in "${loops[@]}"; do umount -l "$path" 2>/dev/null; done
    if [ "$failed" = 0 ] && [ -z "${PANDO_KEEP:-}" ]; then
        rm -rf --one-file-system "$WORK"
    else
        echo "kept: $WORK"
        find "$WORK" -name pando.log -size +0 -exec tail -n 20 {} \; | sed 's/^/    log: /'
    fi
    echo "result: $passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
    exit
}
trap finish EXIT
trap 'fail "${TEST:-run}" interrupted; exit 1' INT TERM

# Mount points of ours below $WORK, as they are.
mounted_below() {
    local point type
    while read -r _ _ _ _ point rest; do
        type=${rest##* - }
        printf -v point '%b' "${point//\\/\\0}"
        [[ ${type%% *} == fuse.pando && $point == "$WORK"/* ]] && echo "$point"
    done </proc/self/mountinfo
}

# What these tests cannot do without; they fail rather than pretend.
require() {
    [ "$(id -u)" = 0 ] || die "must run as root (mounts, loop devices, other users)"
    [ -e /dev/fuse ] || die "/dev/fuse is missing: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
    [ -x "$PANDO" ] || die "$PANDO is missing: cargo build --release -p cli"
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null 2>&1 || [ -x "$TOOLS/bin/$program" ] ||
            die "$program is missing: scripts/install-prerequisites.sh --tests"
    done
}

# up DIR MNT [ARGS...]: mounts; SERVER is the process that serves. With VIA=socket that is another process than the mount's, and with
# BESIDE=1 a second mount of it looks at everything over and over, so that what is delegated to the first one is taken back all the time;
# with KILLS=SECONDS it is killed and started again whenever so many have passed.
up() {
    local dir=$1 mnt=$2 word
    shift 2
    if [ "${VIA:-}" = socket ]; then
        [ -e "$dir" ] || "$PANDO" -q format "$dir" >"$WORK/err" 2>&1 || die "format: $(cat "$WORK/err")"
        serve "$dir"
        "$PANDO" -q mount "$@" "unix:$dir/pando.sock" "$mnt" 2>"$WORK/err" || die "mount: $(cat "$WORK/err")"
        [ -z "${BESIDE:-}" ] || beside "$dir"
        [ -z "${KILLS:-}" ] || killed "$dir"
        return
    fi
    word=$("$PANDO" mount --format json "$@" "$dir" "$mnt" 2>"$WORK/err") || die "mount: $(cat "$WORK/err")"
    SERVER=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' <<<"$word")
    [ -n "$SERVER" ] || die "mount told no pid: $word"
}

# serve DIR [ARGS...]: serves in the background; SERVER is the process.
serve() {
    local n
    "$PANDO" serve "$@" >>"$WORK/serve.out" 2>&1 &
    SERVER=$!
    pids+=($SERVER)
    for n in $(seq 1200); do
        "$PANDO" status --cluster "$1" >/dev/null 2>&1 && return
        kill -0 $SERVER 2>/dev/null || break
        sleep 0.05
    done
    die "serve: $(tail -n 3 "$WORK/serve.out")"
}

down() {
    if [ -n "${BESIDE_PID:-}" ]; then
        touch "$WORK/enough"
        wait "$BESIDE_PID"
        BESIDE_PID=
        "$PANDO" umount "$WORK/beside" >"$WORK/err" 2>&1 || die "umount: $(cat "$WORK/err")"
    fi
    if [ -n "${KILLER_PID:-}" ]; then
        touch "$WORK/enough"
        wait "$KILLER_PID"
        KILLER_PID=
        echo "killed $(wc -l <"$WORK/kills") times"
        SERVER=$(tail -n 1 "$WORK/kills")
        "$PANDO" umount "$1" >"$WORK/err" 2>&1 || die "umount: $(cat "$WORK/err")"
        kill "$SERVER" && wait_gone "$SERVER"
        return
    fi
    "$PANDO" umount "$1" >"$WORK/err" 2>&1 || die "umount: $(cat "$WORK/err")"
    [ "${VIA:-}" = socket ] || return 0
    kill "$SERVER" && wait "$SERVER" || die "the server ended with $?: $(tail -n 3 "$WORK/serve.out")"
}

# beside DIR: a second mount of the server, which lists, stats and reads all there is until `down`.
beside() {
    "$PANDO" -q mount "unix:$1/pando.sock" "$WORK/beside" 2>"$WORK/err" || die "mount: $(cat "$WORK/err")"
    while [ ! -e "$WORK/enough" ]; do
        # What goes meanwhile is no error of its reader's.
        find "$WORK/beside" -type f -print0 2>/dev/null | xargs -0 -r cat >/dev/null 2>&1
    done &
    BESIDE_PID=$!
    pids+=("$BESIDE_PID")
}

# killed DIR: kills the server and starts another until `down`; its number is the last line of WORK/kills.
killed() {
    : >"$WORK/kills"
    (
        while [ ! -e "$WORK/enough" ]; do
            sleep "$KILLS"
            kill9 "$SERVER"
            serve "$1"
            echo "$SERVER" >>"$WORK/kills"
        done
        # Another shell ends it.
        disown -a
        trap - EXIT
    ) 2>>"$WORK/serve.out" &
    KILLER_PID=$!
    pids+=("$KILLER_PID")
}

# page PATH: what the server that has its metrics at 127.0.0.1:$port answers, fetched with nothing but the shell.
page() {
    local line
    exec 6<>"/dev/tcp/127.0.0.1/$port" || return 1
    printf 'GET %s HTTP/1.1\r\nHost: x\r\n\r\n' "$1" >&6
    while IFS= read -r line <&6; do printf '%s\n' "${line%$'\r'}"; done
    exec 6<&-
}

# let_pass SECONDS WHY: where time itself is what is tested, or that nothing happens in it. Everything else waits for a state.
let_pass() { sleep "$1"; }

# waits_on_fuse PID: until the process has waited for a FUSE file system, or for a page, each of ten times in a row that it was looked at.
# Fails if it ends, or does not within twenty seconds.
waits_on_fuse() {
    local n times=0
    for n in $(seq 400); do
        if grep -qsE 'fuse|folio_wait' "/proc/$1/stack"; then times=$((times + 1)); else times=0; fi
        [ $times -lt 10 ] || return 0
        [ -d "/proc/$1" ] && ! grep -qs '^State:[[:space:]]*[ZX]' "/proc/$1/status" || return 1
        sleep 0.05
    done
    return 1
}

# was_interrupted PID: until a process that waits for a FUSE file system has taken a signal, from when on nothing but its end ends
# that wait (state D); or it has ended.
was_interrupted() {
    local n
    for n in $(seq 400); do
        grep -qs '^State:[[:space:]]*[^DZX[:space:]]' "/proc/$1/status" || return 0
        sleep 0.05
    done
    return 1
}

wait_gone() {
    local n
    for n in $(seq 600); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.05
    done
    die "process $1 does not end"
}

# kill9 PID: only what `up` or a test started; waits until all its threads are gone, and with them its locks: the first one may
# be a zombie while another still waits for a disk.
kill9() {
    kill -9 "$1" 2>/dev/null
    while [ "$(cat "/proc/$1/task/"*/status 2>/dev/null | grep -c '^State:[[:space:]]*[^Z[:space:]]')" != 0 ]; do
        sleep 0.02
    done
}

# clean DIR: fsck of a folder that nobody serves.
clean() {
    local code
    "$PANDO" fsck "$1" >"$WORK/out" 2>&1
    code=$?
    [ "$code" = 0 ] || tail -n 10 "$WORK/out" | sed 's/^/    /'
    return "$code"
}
