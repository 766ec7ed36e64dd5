# Sourced after lib.sh by tests of several ranks: a server with slots, questions about lives and owners, and how to wait for them.
#
# Absent: tests.

# Numbers that follow from this one are the same in each run with it.
SEED=${PANDO_SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$SEED

# ask WORDS...: an operator's command.
ask() { "$PANDO" "$@" --cluster "$WORK/data"; }

# serve_ranks SLOTS RANKS [ARGS...]: a server of WORK/data with quick beacons; returns when so many ranks are active.
serve_ranks() {
    printf 'mds_beacon_interval = 1\nmds_beacon_grace = 3\nsession_timeout = 10\n' >"$WORK/pando.toml"
    [ -e "$WORK/data" ] || "$PANDO" -q format "$WORK/data" >"$WORK/err" 2>&1 || die "format: $(cat "$WORK/err")"
    serve "$WORK/data" --ranks "$1" --conf "$WORK/pando.toml" "${@:3}"
    ask fs set pandofs max_mds "$2" >"$WORK/out" 2>&1 || die "max_mds: $(cat "$WORK/out")"
    within serve_all "$2" || die "$2 ranks do not serve"
}
serve_all() { [ "$(active)" = "$1" ]; }

# active: how many ranks are.
active() { ask fs get pandofs 2>/dev/null | grep -c ' state up:active '; }
# life RANK: which life of it serves; nothing while none does.
life() { ask fs get pandofs 2>/dev/null | sed -n "s/^\[mds\..*{$1:[0-9]*} state up:active incarnation \([0-9]*\)]$/\1/p"; }
later() { local now; now=$(life "$1") && [ -n "$now" ] && [ "$now" -gt "$2" ]; }
owner() { ask subtree ls | awk -v path="$1" '$1 == path { print $2 }'; }
owned() { [ "$(owner "$1")" = "$2" ]; }

# counted GAUGE: of all ranks together, by the page of a server that has one at $port; -1 if a rank says nothing of it.
counted() {
    page /metrics | awk -v ranks="$(active)" -v gauge="^$1{" '$1 ~ gauge { sum += $2; said++ } END { print (said && said == ranks ? sum + 0 : -1) }'
}
counts() { [ "$(counted "$1")" = "$2" ]; }

# within CONDITION...: a minute.
within() {
    local n
    for n in $(seq 600); do
        "$@" && return
        sleep 0.1
    done
    ask fs dump
    return 1
}

# pinned DIR RANK: makes a directory of WORK/mnt whose content is that rank's.
pinned() {
    mkdir -p "$WORK/mnt/$1" && setfattr -n ceph.dir.pin -v "$2" "$WORK/mnt/$1" && within owned "/$1" "$2" || die "a pin of $1 to $2"
}

# harm RANK KIND: has a life of it end, as `fail`, `crash` or `hang`, and waits for the next one.
harm() {
    local before
    before=$(life "$1")
    case $2 in
        fail) ask mds fail "$1" ;;
        *) ask tell "mds.$1" "$2" ;;
    esac && within later "$1" "${before:-0}"
}
