# What people do: git clone and build, sqlite, tar, rsync and cp with checksums.
. "$(dirname "$0")/lib.sh"
require git sqlite3 rsync tar make gcc
TEST=work
up "$WORK/data" "$WORK/mnt"
cd "$WORK" || exit 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

# A small project, made here so that no network is needed.
project() (
    mkdir -p "$1/src" && cd "$1" || return 1
    local n
    for n in $(seq 1 120); do
        printf 'int f%s(int x) { return x * %s + 1; }\n' "$n" "$n" >"src/f$n.c"
    done
    {
        for n in $(seq 1 120); do echo "int f$n(int);"; done
        printf '#include <stdio.h>\nint main(void) { int sum = 0;\n'
        for n in $(seq 1 120); do echo "sum += f$n($n);"; done
        printf 'printf("%%d\\n", sum); return 0; }\n'
    } >src/main.c
    printf 'OBJECTS := $(patsubst %%.c,%%.o,$(wildcard src/*.c))\nprogram: $(OBJECTS)\n\tgcc -o $@ $^\n' >Makefile
    git init -q . && git add . && git commit -q -m one
)
check "a project" project "$WORK/origin"
check "git clone" git clone -q "$WORK/origin" "$WORK/mnt/clone"
check "build" make -s -j4 -C "$WORK/mnt/clone"
same "the program runs from the mount" 583340 "$("$WORK/mnt/clone/program")"
check "git sees the objects only" bash -c 'cd mnt/clone && test "$(git status --porcelain | grep -vc "\.o$")" = 1'
check "git gc and fsck" bash -c 'cd mnt/clone && git gc -q && git fsck --strict'
check "git branch, merge, stash" bash -c 'cd mnt/clone && git checkout -q -b b && echo 1 >new && git add new &&
    git commit -q -m two && git checkout -q - && git merge -q b && echo 2 >new && git stash -q && git stash pop -q'

sql() { sqlite3 "$WORK/mnt/db" "$@"; }
check "sqlite: rollback journal" sql 'create table t(a integer primary key, b text);
    with recursive n(i) as (select 1 union all select i+1 from n where i<20000) insert into t select i, hex(i*i) from n;'
check "sqlite: write-ahead log" sql 'pragma journal_mode=wal; update t set b=b||a where a%3=0; delete from t where a%7=0; vacuum;'
same "sqlite: whole" ok "$(sql 'pragma integrity_check')"
same "sqlite: rows" 17143 "$(sql 'select count(*) from t')"
writers() {
    local n all=()
    for n in 1 2 3 4; do
        (for i in $(seq 25); do sqlite3 -cmd '.timeout 20000' "$WORK/mnt/db" "insert into t(b) values('w$n.$i')" || exit 1; done) &
        all+=($!)
    done
    for n in "${all[@]}"; do wait "$n" || return 1; done
}
check "sqlite: four writers" writers
same "sqlite: all their rows" 100 "$(sql "select count(*) from t where b like 'w%'")"

# A tree with every kind of thing in it.
tree() (
    mkdir -p "$1" && cp -a "$WORK/origin/." "$1" && cd "$1" || return 1
    head -c 9000000 /dev/urandom >large && head -c 70000 /dev/urandom >medium && : >empty
    truncate -s 50M sparse && printf x | dd of=sparse bs=1 seek=30000000 conv=notrunc status=none
    ln large hard && ln -s large soft && ln -s nowhere dangling && mkfifo pipe && mknod dev c 1 7
    chmod 4755 medium && chown 5:6 empty && setfattr -n user.k -v v medium && setfacl -m u:7:rw medium
    touch -d '1999-12-31 23:59:59.999999999' large && mkdir -p "deep/$(printf 'd/%.0s' {1..60})" "with blank"
    touch "with blank/$(printf 'odd\nname')"
)
sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
facts() { (cd "$1" && find . -printf '%P %y %m %U %G %s %T@ %l\n' | grep -v '^ ' | sed '/ d /s/ [0-9]* \([0-9.]*\) $/ \1/' | sort); }
check "a tree" tree "$WORK/tree"
check "cp -a" cp -a "$WORK/tree" "$WORK/mnt/cp"
# Window -1: rsync otherwise takes times of the same second for equal and does not set them.
check "rsync -aHAX" rsync -aHAX --modify-window=-1 "$WORK/tree/" "$WORK/mnt/rsync/"
check "tar in" bash -c 'mkdir mnt/tar && tar --xattrs --acls -C tree -cf - . | tar --xattrs --acls -C mnt/tar -xpf -'
check "tar out" bash -c 'mkdir back && tar --xattrs --acls -C mnt/tar -cf - . | tar --xattrs --acls -C back -xpf -'
for copy in mnt/cp mnt/rsync mnt/tar back; do
    check "$copy: content" diff <(sums tree) <(sums "$copy")
    check "$copy: types, modes, owners, sizes, times, links" diff <(facts tree) <(facts "$copy")
done
same "hard links stay one file" "$(stat -c %i mnt/rsync/large)" "$(stat -c %i mnt/rsync/hard)"
same "acls travel" "user:7:rw-" "$(getfacl -np mnt/tar/medium 2>/dev/null | grep ^user:7)"
# Data begins in the 4 MiB block that holds byte 30,000,000; everything before is a hole.
data=$(perl -e 'open(F, "<", $ARGV[0]) or die; print sysseek(F, 0, 3)' mnt/cp/sparse)
check "SEEK_DATA skips the hole" test "$data" -ge 25165824 -a "$data" -le 30000000
check "rsync finds nothing to do" bash -c 'test -z "$(rsync -aHAXin --modify-window=-1 --checksum tree/ mnt/rsync/)"'
down "$WORK/mnt"
check "fsck" clean "$WORK/data"
up "$WORK/data" "$WORK/mnt"
check "content after a remount" diff <(sums tree) <(sums mnt/rsync)
check "facts after a remount" diff <(facts tree) <(facts mnt/rsync)
check "rm -rf" rm -rf mnt/cp mnt/rsync mnt/tar mnt/clone
down "$WORK/mnt"
check "fsck of what is left" clean "$WORK/data"
