# Sourced: the tree that a fixture holds, and what there is to know about a tree.
# Absent: packing (make-fixture.sh), the test (t_fixture.sh).

# fixture_tree DIR: one of everything that a data folder keeps.
fixture_tree() (
    set -e
    mkdir -p "$1/many" "$1/deep/a/b/c" "$1/doomed" && cd "$1"
    for n in $(seq 1 400); do echo "content of $n" >"many/file $n"; done
    for n in $(seq 1 60); do echo gone >"doomed/$n"; done
    seq 1 2000 >small && seq 1 40000 >large && : >empty
    truncate -s 20M sparse && printf x | dd of=sparse bs=1 seek=15000000 conv=notrunc status=none
    seq 1 30000 >cut && truncate -s 5000 cut && truncate -s 9000 cut
    ln large hard && ln large deep/hard && ln -s large soft && mkfifo pipe && mknod device c 1 7
    chmod 4755 small && chown 5:6 empty && setfattr -n user.key -v value small && setfacl -m u:7:rw small
    setfacl -d -m g:8:rx deep && mv deep/a/b renamed && touch -d '1999-12-31 23:59:59.123456789 UTC' large
    touch "$(printf 'odd\nname')" "$(printf '\377\001')"
    rm -r doomed
)

# spread_tree: the same in WORK/mnt, of which rank 1 has one directory, ranks 0 and 1 have another together, and slots place a third (ranks.sh).
spread_tree() {
    pinned deep 1
    mkdir "$WORK/mnt/many" "$WORK/mnt/many/spread" && setfattr -n ceph.dir.pin.distributed -v 1 "$WORK/mnt/many/spread" || return 1
    "$PANDO" dirfrag split "$WORK/mnt/many" 1 && within parted many || return 1
    fixture_tree "$WORK/mnt" || return 1
    local n
    for n in $(seq 1 20); do
        mkdir "$WORK/mnt/many/spread/$n" && echo "$n" >"$WORK/mnt/many/spread/$n/file" || return 1
    done
}
# parted PATH: several ranks have parts of it.
parted() { [ "$("$PANDO" --format json dirfrag ls "$WORK/mnt/$1" | grep -o '"rank": *[0-9]*' | sort -u | wc -l)" -gt 1 ]; }

# facts DIR: everything that must be the same after any way a tree may go.
facts() (
    cd "$1" || return 1
    export LC_ALL=C TZ=UTC
    find . -printf '%p|%y|%m|%U|%G|%n|%T@|%l\n' | grep -av '^\.|' | sort
    find . -type f -printf '%p|%s\n' | sort
    find . -type f -print0 | sort -z | xargs -0 sha256sum
    getfattr -R -h -d -m '^user' . 2>/dev/null
    getfacl -R -n -p . 2>/dev/null
)
