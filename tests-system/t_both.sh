# Programs on two mounts of one server, on the same files at the same time: databases, repositories, logs, spools, counters. Each must
# come out as it would on one machine.
. "$(dirname "$0")/lib.sh"
require git sqlite3 flock
TEST=both
VIA=socket
up "$WORK/data" "$WORK/a"
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/b" 2>"$WORK/err" || die "mount: $(cat "$WORK/err")"
cd "$WORK" || exit 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

# both FUNCTION: at the same time in each mount, with its name; fails if one of them does, and the other need not go on.
both() {
    local one two code=0
    rm -f failed
    ("$1" a || { touch failed; exit 1; }) &
    one=$!
    ("$1" b || { touch failed; exit 1; }) &
    two=$!
    wait "$one" || code=1
    wait "$two" || code=1
    return $code
}

sqlite3 a/db 'create table t(who text, n integer)' || die "sqlite3"
insert() {
    for n in $(seq 60); do sqlite3 -cmd '.timeout 60000' "$1/db" "insert into t values('$1', $n)" || return 1; done
}
check "sqlite: writers on both" both insert
same "sqlite: all rows, each once" "60 60" "$(sqlite3 b/db "select count(distinct n) from t where who='a'" "select count(*) from t where who='b'" | xargs)"
same "sqlite: whole" ok "$(sqlite3 a/db 'pragma integrity_check')"

append() {
    for n in $(seq 400); do echo "$1 $n of a line that is neither short nor long" >>"$1/log" || return 1; done
}
check "lines appended on both" both append
same "no line is lost or torn" 800 "$(sort -u b/log | grep -c '^[ab] [0-9]* of a line that is neither short nor long$')"

echo 0 >a/counter
count() {
    for _ in $(seq 150); do
        flock "$1/lock" sh -c 'n=$(cat "$0/counter") && echo $((n + 1)) >"$0/counter"' "$1" || return 1
    done
}
check "a counter under flock" both count
same "nothing counted twice or not at all" 300 "$(cat b/counter)"

echo 0 >a/second
take() {
    for _ in $(seq 100); do
        until mkdir "$1/taken" 2>/dev/null; do [ ! -e failed ] || return 1; done
        n=$(cat "$1/second") && echo $((n + 1)) >"$1/new.$1" && mv "$1/new.$1" "$1/second" || return 1
        rmdir "$1/taken" || return 1
    done
}
check "a counter that is replaced, under a directory as lock" both take
same "nothing is lost" 200 "$(cat b/second)"

mkdir -p a/spool/tmp a/spool/new
# One delivers as a maildir is delivered to, the other takes what came, whole or not at all.
spool() {
    if [ "$1" = a ]; then
        for n in $(seq 300); do
            seq "$n" >"a/spool/tmp/$n" && mv "a/spool/tmp/$n" "a/spool/new/$n" || return 1
        done
        return 0
    fi
    local got=0 n
    while [ "$got" -lt 300 ] && [ ! -e failed ]; do
        for file in b/spool/new/*; do
            [ -e "$file" ] || continue
            n=$(basename "$file")
            [ "$(wc -l <"$file")" = "$n" ] && rm "$file" || return 1
            got=$((got + 1))
        done
    done
}
check "a spool: delivered here, taken there" both spool
same "nothing is left in it" "" "$(ls -A a/spool/new b/spool/new a/spool/tmp | grep -v : | xargs)"

git init -q --bare a/bare.git && git clone -q a/bare.git seed 2>/dev/null && (cd seed && echo 0 >base && git add . && git commit -q -m base && git push -q origin HEAD:main) || die "git"
work() {
    git clone -q -b main "$1/bare.git" "$1/clone.$1" && cd "$1/clone.$1" || return 1
    for n in $(seq 8); do
        echo "$n" >"file.$1.$n" && git add . && git commit -q -m "$1 $n" || return 1
        until git push -q origin HEAD:main; do git pull -q --rebase origin main || return 1; done
    done
}
check "git: both push to one repository" both work
same "git: every commit arrived" 17 "$(git --git-dir=b/bare.git log --oneline main | wc -l)"
check "git: whole" git --git-dir=a/bare.git fsck --strict
check "git: gc there, log here" bash -c 'git --git-dir=b/bare.git gc -q && test "$(git --git-dir=a/bare.git log --oneline main | wc -l)" = 17'

# Each changes a tree of its own and looks at the other's.
trees() {
    local other=b n
    [ "$1" = a ] || other=a
    for n in $(seq 12); do
        mkdir -p "$1/tree.$1/$n" && (cd "$1/tree.$1/$n" && for m in $(seq 60); do echo "$1.$n.$m" >"$m"; done) || return 1
        find "$1/tree.$other" -type f -exec cat {} + >/dev/null 2>&1
        [ "$n" -lt 3 ] || rm -r "$1/tree.$1/$((n - 2))" || return 1
    done
}
check "trees made, read there, and removed" both trees
same "what is left is what is seen there" "$(cd a && find tree.a tree.b | sort | md5sum)" "$(cd b && find tree.a tree.b | sort | md5sum)"
same "and what is in it" 11.60 "$(cat b/tree.a/11/60 | cut -d. -f2-)"

"$PANDO" umount b >"$WORK/err" 2>&1 || die "umount: $(cat "$WORK/err")"
down "$WORK/a"
check "fsck afterwards" clean "$WORK/data"
