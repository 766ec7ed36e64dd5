# A tree of some hundred directories that slots place at four ranks, so that a directory's name and its content are mostly at different ones. Nobody removes one
# that is not empty; one that is removed, or renamed over, while it is open lists nothing; one is renamed over an empty one whose content is elsewhere;
# all of it is removed. A second mount sees the same.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require python3 getfattr
TEST=hashed
cd "$WORK" || exit 1

serve_ranks 5 4
for each in mnt mnt2; do
    mkdir -p $each && "$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/$each" 2>err || die "mount: $(cat err)"
done
check "hash placement" ask fs set pandofs placement hash
even() { [ "$(ask --json fs get pandofs | grep -oE '"slots":[0-9]+' | sort -u)" = '"slots":1024' ]; }
check "slots are divided" within even
mkdir mnt/tree mnt/tree/{1..20} && mkdir mnt/tree/{1..20}/{1..15} && for leaf in mnt/tree/*/*; do echo text >"$leaf/file" || exit; done || die "a tree"
# ranks DIR...: those that have these directories.
ranks() { for each in "$@"; do getfattr --only-values -n pando.dir.owner "$each" && echo; done | sed 's/.*=//' | sort -u | xargs; }
same "it is at all ranks" "0 1 2 3" "$(ranks mnt/tree/{1..4}/*)"

# refused MOUNT: how removing each of them ended.
cat >refused.py <<'PY'
import collections, errno, os, sys
def ends(path):
    try: os.rmdir(path)
    except OSError as error: return errno.errorcode[error.errno]
    return 'done'
print(dict(collections.Counter(ends(path) for path, _, _ in os.walk(sys.argv[1], topdown=False))))
PY
for each in mnt mnt2; do same "none is removed that is not empty, by $each" "{'ENOTEMPTY': 321}" "$(python3 refused.py $each/tree)"; done
whole() { [ "$(find "$1/tree" -type d | wc -l) $(cat "$1"/tree/*/*/file | wc -l)" = "321 300" ]; }
for each in mnt mnt2; do check "all of it is there, by $each" whole $each; done

# What is open when it goes: removed by its own mount or the other one, or renamed over.
cat >open.py <<'PY'
import errno, os
MOUNTS = ('mnt', 'mnt2')
def told(call, *args, **more):
    try: return call(*args, **more)
    except OSError as error: return errno.errorcode[error.errno]
def opened(path): return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
for name in ('gone', 'from', 'over'):
    os.mkdir(f'mnt/{name}')
    for n in range(20): os.mkdir(f'mnt/{name}/{n}')
# The kernel of the mount that removes a directory knows that it is gone; the other one is told by ranks.
held = [opened(f'mnt/{name}/{n}') for name in ('gone', 'over') for n in range(2)]
for n in range(20): os.rmdir(f'{MOUNTS[n % 2]}/gone/{n}')
for n in range(20):
    with open(f'mnt/from/{n}/file', 'w') as file: file.write(str(n))
inos = [os.stat(f'mnt/from/{n}').st_ino for n in range(20)]
for n in range(20): os.rename(f'{MOUNTS[n % 2]}/from/{n}', f'{MOUNTS[n % 2]}/over/{n}')
for fd in held:
    assert told(os.listdir, fd) == [], 'names in what was removed'
    assert os.fstat(fd).st_nlink == 0, 'links of what was removed'
    assert told(os.mkdir, 'new', dir_fd=fd) == 'ENOENT', 'a new name in what was removed'
    os.close(fd)
for mount in MOUNTS:
    assert os.listdir(f'{mount}/gone') == os.listdir(f'{mount}/from') == [], mount
    assert os.stat(f'{mount}/from').st_nlink == 2 and os.stat(f'{mount}/over').st_nlink == 22, mount
    for n in range(20):
        assert os.stat(f'{mount}/over/{n}').st_ino == inos[n], f'{mount}: {n} is another'
        assert open(f'{mount}/over/{n}/file').read() == str(n), f'{mount}: {n}'
for n in range(20):
    os.mkdir(f'mnt/from/{n}')
    assert told(os.rename, f'{MOUNTS[n % 2]}/from/{n}', f'{MOUNTS[n % 2]}/over/{n}') == 'ENOTEMPTY', n
    assert open(f'mnt/over/{n}/file').read() == str(n) and os.listdir(f'mnt2/from/{n}') == [], n
PY
check "what is open when it goes, and what comes over it" python3 open.py
check "these were at several ranks, too" [ "$(ranks mnt/over/* | wc -w)" -gt 2 ]
check "the tree is removed" rm -r mnt/tree
check "and the others, by the other mount" rm -r mnt2/gone mnt2/from mnt2/over
for each in mnt mnt2; do same "nothing is left, by $each" "2 0" "$(stat -c %h $each) $(find $each -mindepth 1 | wc -l)"; done
for each in mnt mnt2; do
    "$PANDO" umount "$WORK/$each" >err 2>&1 || die "umount: $(cat err)"
done
kill "$SERVER" && wait_gone "$SERVER"
check "fsck" clean "$WORK/data"
