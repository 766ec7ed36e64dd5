# Sourced by run.sh: makes the disk of one system, starts its processes, waits for them within limits, counts their CPU
# ticks and ends them, each by its number. Absent: what the systems are (systems.sh), and what is run on them (run.sh).

# The image of the disk, where it is mounted, where the system under test is mounted (run.sh sets them).
IMAGE='' BASE='' MNT=''
# The system's processes, the one among them that answers FUSE, and the time each was started at: a number may be somebody
# else's by the time we end it.
pids=() CLIENT=''
declare -A born=()

say() { echo "$(date +%T) $*"; }
complain() { echo "peers: $*" >&2; }
die() {
    complain "$@"
    exit 1
}

# started PID: when, in the kernel's count; nothing when there is no such process.
started() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# ours PID: remembers it.
ours() {
    pids+=("$1")
    born[$1]=$(started "$1")
}

# begin NAME COMMAND...: runs it in the background, in a session of its own (an interrupt at the terminal must not
# end a server before its mount is gone); PID is its number. Its output is the file NAME.log.
begin() {
    local name=$1
    shift
    setsid "$@" >"$BASE/$name.log" 2>&1 </dev/null &
    PID=$!
    # Else the shell tells everybody when it is killed.
    disown "$PID"
    ours "$PID"
}

# step NAME COMMAND...: runs it to its end within a minute; its output is added to the file NAME.log.
step() {
    local name=$1
    shift
    timeout 60 "$@" >>"$BASE/$name.log" 2>&1 && return 0
    complain "failed: $*"
    return 1
}

# gone PID: it has ended, waited for or not.
gone() {
    [ ! -d "/proc/$1" ] || [ "$(started "$1")" != "${born[$1]}" ] || grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"
}

# until_true SECONDS WHAT COMMAND...: asks until the command succeeds; fails when one of our processes has ended.
until_true() {
    local end=$((SECONDS + $1)) seconds=$1 what=$2 pid
    shift 2
    until "$@" >/dev/null 2>&1; do
        for pid in "${pids[@]}"; do
            gone "$pid" || continue
            complain "process $pid ended before there was $what"
            return 1
        done
        if [ $SECONDS -ge $end ]; then
            complain "no $what within $seconds s"
            return 1
        fi
        sleep 0.1
    done
}

# mounted POINT: something is mounted there. Read from the kernel's table; asking the mount itself may hang.
mounted() { awk -v point="$1" '$5 == point { found = 1 } END { exit !found }' /proc/self/mountinfo; }

# make_image GIB: written in full, so that nothing is allocated below a system that runs on it.
make_image() {
    dd if=/dev/zero of="$IMAGE" bs=1M count=$(($1 * 1024)) oflag=direct status=none
}

# fresh_disk: an ext4 on the image that nobody has used before, mounted at BASE. On the disk's own file system, a system would
# pay for what the one before it removed: for minutes, ext4 walks past every inode that was freed lately.
fresh_disk() {
    local device
    mkfs.ext4 -q -F -E lazy_itable_init=1,nodiscard "$IMAGE" || return 1
    device=$(losetup --show -f --direct-io=on "$IMAGE") || return 1
    mount -o noinit_itable "$device" "$BASE" || { losetup -d "$device"; return 1; }
    # Goes away with its mount.
    losetup -d "$device"
}

# take_away POINT: unmounts what is mounted there.
take_away() {
    local i
    for ((i = 0; i < 100; i++)); do
        mounted "$1" || return 0
        umount "$1" 2>/dev/null || sleep 0.1
    done
    complain "$1 is busy; it is taken away nevertheless"
    umount -l "$1" || true
}

# ticks: "PID TICKS COMMAND" of each of our processes and their descendants; ticks are user and system time of all
# threads.
ticks() {
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v ours="${pids[*]}" '
        BEGIN { count = split(ours, list, " "); for (i = 1; i <= count; i++) root[list[i]] = 1 }
        {
            name = rest = $0
            sub(/^[^(]*\(/, "", name); sub(/\)[^)]*$/, "", name); sub(/^.*\) /, "", rest)
            split(rest, field, " ")
            parent[$1] = field[2]; used[$1] = field[12] + field[13]; command[$1] = name
        }
        END {
            for (pid in parent) {
                up = pid
                while (up in parent && !(up in root)) up = parent[up]
                if (up in root) print pid, used[pid], command[pid]
            }
        }' | sort -n
}

# end PID: kills it and waits until it is gone.
end() {
    local i
    for ((i = 0; i < 1500; i++)); do
        # Called while the script exits, a bare return would hand on the exit's status.
        gone "$1" && return 0
        kill -9 "$1" 2>/dev/null || true
        sleep 0.02
    done
    complain "process $1 does not end"
}

# down: unmounts, ends the processes and takes their disk, which nobody will read again: only what answered FUSE is given
# the time to end by itself.
down() {
    local i family=()
    take_away "$MNT"
    mapfile -t family < <(ticks | cut -d' ' -f1)
    for i in "${family[@]}"; do born[$i]=$(started "$i"); done
    if [ -n "$CLIENT" ]; then
        for ((i = 0; i < 600; i++)); do
            gone "$CLIENT" && break
            sleep 0.1
        done
        gone "$CLIENT" || complain "process $CLIENT goes on without its mount and is killed"
    fi
    for i in "${pids[@]}" "${family[@]}"; do end "$i"; done
    take_away "$BASE/tmpfs"
    take_away "$BASE"
    CLIENT='' pids=() born=()
}
