# Trees are moved from rank to rank by rename, by two mounts at once, while ranks and the server die; nothing is lost, and no directory comes below itself,
# also where two are moved below each other at the same moment by mounts whose kernels have not heard of it.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require setfattr python3
TEST=dirs_ranks
echo "PANDO_SEED=$SEED"
cd "$WORK" || exit 1

serve_ranks 4 3
mkdir -p mnt2
for each in mnt mnt2; do
    "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/$each" 2>err || die "mount: $(cat err)"
done
pinned a 0
pinned b 1
pinned c 2
# tree DIR: four directories with files.
tree() {
    local n
    mkdir "$1" || return
    for n in 1 2 3 4; do
        mkdir -p "$1/$n/deep" && echo "$n" >"$1/$n/deep/file" && echo "$n" >"$1/$n/file" || return
    done
}
# whole DIR: it is as it was made.
whole() { [ "$(cat "$1"/*/deep/file "$1"/*/file 2>/dev/null | tr -d '\n')" = 12341234 ]; }
# renamed FROM TO: by one rename, never by a copy; says how it ended.
renamed() {
    python3 -c 'import errno, os, sys
try: os.rename(sys.argv[1], sys.argv[2])
except OSError as error: print(errno.errorcode[error.errno])
else: print("done")' "$1" "$2"
}
moved() {
    local before
    before=$(stat -c %i "$1") && [ "$(renamed "$1" "$2")" = done ] && [ "$(stat -c %i "$2")" = "$before" ]
}
# all: whatever there is, as both mounts have it.
all() { find mnt mnt2 -printf '%i %n %p\n' | sort; }
# unchanged WANTED COMMAND...: it says how a rename ended, and nothing has changed anywhere.
unchanged() {
    local wanted=$1 before found
    shift
    before=$(all)
    found=$("$@")
    [ "$found" = "$wanted" ] || { echo "wanted $wanted, found $found" && return 1; }
    diff <(echo "$before") <(all)
}
# links DIR: subdirectories that its link count says, and that there are.
links() { [ $(($(stat -c %h "$1") - 2)) = "$(find "$1" -mindepth 1 -maxdepth 1 -type d | wc -l)" ]; }

tree mnt/a/t || die "a tree"
check "from rank 0 to rank 1" moved mnt/a/t mnt/b/t
check "it is whole" whole mnt/b/t
check "the other mount sees it" whole mnt2/b/t
check "and nothing at its old name" [ ! -e mnt2/a/t ]
check "from rank 1 to rank 2, by the other one" moved mnt2/b/t mnt2/c/t
check "it is whole there" whole mnt/c/t
same "dot dot" "$(stat -c %i mnt/c)" "$(stat -c %i mnt/c/t/..)"
check "into itself" unchanged EINVAL renamed mnt/c/t mnt/c/t/1/t
check "what it is in into it" unchanged EINVAL renamed mnt/c mnt/c/t/1/c
check "a tree below another one's" moved mnt/b mnt/c/t/b
check "which does not go below that" unchanged EINVAL renamed mnt2/c mnt2/c/t/b/c
check "and back" moved mnt2/c/t/b mnt2/b
# A kernel refuses what its own names forbid. So one that has b open where it was gets to hear of nothing, and it is the ranks who refuse.
cat >behind.py <<'PY'
import errno, os
held = os.open('mnt/b', os.O_RDONLY)
os.rename('mnt2/b', 'mnt2/c/t/b')
try: os.rename('mnt/c', 'c', dst_dir_fd=held)
except OSError as error: print(errno.errorcode[error.errno])
else: print('done')
os.rename('mnt2/c/t/b', 'mnt2/b')
PY
check "nor by a mount that knows b where it was" unchanged EINVAL python3 behind.py
mkdir mnt/b/empty mnt/b/full && touch mnt/b/full/x || die "directories"
check "over one that is not empty" unchanged ENOTEMPTY renamed mnt/c/t mnt/b/full
check "over an empty one" moved mnt/c/t mnt/b/empty
check "that is it" whole mnt2/b/empty
check "by mv" mv mnt2/b/empty mnt2/a/t
for dir in a b c; do
    check "links of $dir" links mnt/$dir
done

# Two directories are moved below each other at once, by two mounts that have them open where they were, over and over: of each pair one goes, and
# comes back. Says the first pair that ended otherwise. EXDEV may answer for a while when a rank has died, as both are open.
cat >crossing.py <<'PY'
import errno, os, sys, threading, time
turn = 0
def back(path, to):
    while True:
        try: return os.rename(path, to)
        except OSError as error:
            if error.errno != errno.EXDEV: raise
        time.sleep(0.05)
while not os.path.exists('stop'):
    turn += 1
    y, x = os.open('mnt/b/y', os.O_RDONLY), os.open('mnt2/a/x', os.O_RDONLY)
    both, ends = threading.Barrier(2), {}
    def rename(path, name, below):
        both.wait()
        try: os.rename(path, name, dst_dir_fd=below)
        except OSError as error: ends[name] = errno.errorcode[error.errno]
        else: ends[name] = 'done'
    movers = [threading.Thread(target=rename, args=args) for args in (('mnt/a/x', 'x', y), ('mnt2/b/y', 'y', x))]
    for each in movers: each.start()
    for each in movers: each.join()
    os.close(y), os.close(x)
    ended = sorted(ends.values())
    if ended not in (['EINVAL', 'done'], ['EXDEV', 'done'], ['EXDEV', 'EXDEV']): sys.exit(f'turn {turn}: {ends}')
    if ends['x'] == 'done': back('mnt/b/y/x', 'mnt/a/x')
    if ends['y'] == 'done': back('mnt2/a/x/y', 'mnt2/b/y')
    if 'EXDEV' not in ended: print(ends, file=open('turns.crossing', 'a'), flush=True)
PY
# One tree goes round while ranks die, another one by the other mount; a line for each rename. Where mv has to copy, as what a dead rank may have open does
# not leave, there is none.
tree mnt/b/u || die "another tree"
mkdir mnt/a/x mnt/b/y || die "directories to cross"
dirs=(a b c)
round() {
    local dir=$1 name=$2 from=$3 to before
    while [ ! -e stop ]; do
        to=$(((from + 1 + RANDOM % 2) % 3))
        before=$(stat -c %i "$dir/${dirs[from]}/$name") && mv -T "$dir/${dirs[from]}/$name" "$dir/${dirs[to]}/$name" || return
        from=$to
        whole "$dir/${dirs[from]}/$name" || { echo "$name is not whole in ${dirs[from]}" && return 1; }
        [ "$before" != "$(stat -c %i "$dir/${dirs[from]}/$name")" ] || echo "to ${dirs[from]}" >>turns.$name
    done
}
for each in t u crossing; do : >turns.$each; done
movers=()
round mnt t 0 >out.t 2>&1 &
movers+=($!)
round mnt2 u 1 >out.u 2>&1 &
movers+=($!)
python3 crossing.py >out.crossing 2>&1 &
movers+=($!)
pids+=("${movers[@]}")
# goes_on: each of them makes three more renames, and none has ended. The second of these began after this was asked, so not before the last death.
lives() { local pid; for pid in "${movers[@]}"; do kill -0 "$pid" 2>/dev/null || return; done; }
longer_or_over() { [ "$(wc -l <"turns.$1")" -gt "$2" ] || ! lives; }
goes_on() {
    local each
    for each in t u crossing; do
        within longer_or_over $each $(($(wc -l <turns.$each) + 2)) >out2 2>&1 || { echo "$each does not" && return 1; }
    done
    lives || { tail -n 5 out.t out.u out.crossing && return 1; }
}
check "all go on before" goes_on
for rank in 0 1 2 1; do
    check "rank $rank dies" harm $rank crash
    check "all go on after that" goes_on
done
touch stop
for n in 0 1 2; do
    each=$(echo t u crossing | cut -d ' ' -f $((n + 1)))
    check "$each went on to the end, $(wc -l <turns.$each) times" wait ${movers[n]}
done
same "nobody was told of an error" "" "$(cat out.t out.u out.crossing)"
check "what crossed is apart" rmdir mnt2/a/x mnt/b/y
for name in t u; do
    same "$name is at one place" 1 "$(find mnt/a mnt/b mnt/c -mindepth 1 -maxdepth 1 -name $name | wc -l)"
    check "$name is whole" whole mnt/?/$name
done
mv mnt/?/t mnt/a/final || true
kill -9 "$SERVER" && wait_gone "$SERVER"
serve "$WORK/data" --ranks 4 --conf "$WORK/pando.toml"
check "all serve again" within serve_all 3
check "and have it" whole mnt/a/final
check "the other mount, too" whole mnt2/a/final
for dir in a b c; do
    check "links of $dir" links mnt2/$dir
done
check "all of it is removed" rm -r mnt2/a/final mnt/?/u
for each in mnt mnt2; do
    "$PANDO" umount "$WORK/$each" >err 2>&1 || die "umount: $(cat err)"
done
kill "$SERVER" && wait_gone "$SERVER"
check "fsck" clean "$WORK/data"
