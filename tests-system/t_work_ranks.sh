# git where a repository is at rank 1, clones of it (whose objects are hard links of the repository's) at ranks 1 and 3, and a folder of a working tree at
# rank 2. In the end all that is left is removed.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require git setfattr
TEST=work_ranks
cd "$WORK" || exit 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

serve_ranks 4 4
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"
pinned one 1
pinned three 3
mkdir -p seed/src seed/doc
(cd seed && git init -q -b main && for n in $(seq 150); do echo "text $n" >src/f$n && echo "words $n" >doc/d$n; done && git add . && git commit -q -m base) || die "git"

cd "$WORK/mnt/one" || die "cd"
check "a bare clone" git clone -q --bare "$WORK/seed" bare.git
mkdir -p tree/src && setfattr -n ceph.dir.pin -v 2 tree/src || die "a pin"
check "a folder of the tree is rank 2's" within owned /one/tree/src 2
check "init and fetch into it" bash -c 'cd tree && git init -q -b main && git remote add origin ../bare.git && git fetch -q origin && git reset -q --hard origin/main'
check "nothing differs" bash -c 'cd tree && test -z "$(git status --porcelain)"'
check "commits" bash -c 'cd tree && for n in $(seq 5); do echo $n >src/new.$n && echo $n >doc/new.$n && git mv src/f$n doc/moved.$n && git add . && git commit -q -m "$n" || exit 1; done'
check "branch, merge, stash" bash -c 'cd tree && git checkout -q -b b && echo 1 >src/b && git add src/b && git commit -q -m two && git checkout -q main &&
    git merge -q b && echo 2 >src/b && git stash -q && git stash pop -q && git checkout -q src/b'
check "push" git -C tree push -q origin main
check "a clone with hard links" git clone -q --local bare.git clone
links() { find "$1" -type f -links +1 | wc -l; }
check "there are some" [ "$(links clone/.git/objects)" -gt 0 ]
check "another one at rank 3" git clone -q --local bare.git ../three/clone
check "which has some, too" [ "$(links ../three/clone/.git/objects)" -gt 0 ]
check "one of that, there" git clone -q --local ../three/clone ../three/again
same "all have one tree" "$(git -C bare.git rev-parse main)" "$(for each in tree clone ../three/clone ../three/again; do git -C $each rev-parse HEAD; done | sort -u)"
for each in clone tree ../three/clone bare.git ../three/again; do
    check "gc of $each" git -C $each gc -q --prune=now
    check "fsck of $each" git -C $each fsck --strict --no-dangling
done
check "cp -al from rank to rank" cp -al tree/doc ../three/doc
check "and it is the same" diff -r tree/doc ../three/doc
same "each file has two names" "$(find tree/doc -type f | wc -l)" "$(links ../three/doc)"
check "mv of a tree from rank to rank" mv tree/doc ../three/moved
same "a working tree is whole" "$(git -C "$WORK/seed" ls-tree -r --name-only HEAD src | wc -l)" "$(git -C ../three/again ls-tree -r --name-only HEAD src doc/moved.1 doc/moved.2 doc/moved.3 doc/moved.4 doc/moved.5 | grep -vc 'src/new\|src/b$')"
git -C clone ls-files -z | (cd clone && xargs -0 sha256sum) >"$WORK/sums"
cd "$WORK" || exit 1
"$PANDO" umount "$WORK/mnt" >err 2>&1 || die "umount: $(cat err)"
kill "$SERVER" && wait_gone "$SERVER"
check "fsck" clean "$WORK/data"
serve_ranks 4 4
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"
check "content after a restart" bash -c 'cd mnt/one/clone && sha256sum --quiet -c "$0"' "$WORK/sums"
check "rm -rf" rm -rf mnt/one mnt/three
same "nothing is left" "" "$(ls -A mnt)"
"$PANDO" umount "$WORK/mnt" >err 2>&1 || die "umount: $(cat err)"
kill "$SERVER" && wait_gone "$SERVER"
check "fsck of what is left" clean "$WORK/data"
