# Four ranks and what an operator asks of them: he moves directories, or gives that up, says which ranks may have slots and how many, pins to a rank that is not
# there yet, and has ranks come and go; and what he is shown meanwhile: whose what is, what is asked of it, how each rank is. Then policies of directories, as
# programs find them.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require setfattr getfattr python3
TEST=placement
cd "$WORK" || exit 1

serve_ranks 6 4
"$PANDO" -q mount "unix:$WORK/data/pando.sock" "$WORK/mnt" 2>err || die "mount: $(cat err)"

# said EXPRESSION WORDS...: the items of a Python expression about a command's answer, a line for each.
said() { ask --json "${@:2}" | python3 -c 'import json, sys; a = json.load(sys.stdin); print(*eval(sys.argv[1]), sep="\n")' "$1"; }
# table: `fs status` without its numbers and the names of daemons, a line for each of its lines.
table() {
    ask fs status >status 2>&1 &&
        sed -E '/^MDS version/d; s/Reqs: +[0-9.]+[ kM]?\/s/Reqs/; s/[^ ]+-[0-9]+$/MDS/; s/[^ ]+-[0-9]+ /MDS /; s/ +/ /g; s/^ //
            s/( [0-9.]+[kMGT]?)+$/ N/' status
}
# of RANK KEY: what JSON says of it.
of() { said "(row['$2'] for row in a['mdsmap'] if row.get('rank') == $1)" fs status; }
is() { [ "$(of "$1" "$2")" = "$3" ]; }
standbys() { said 'sorted(row["name"] for row in a["mdsmap"] if row["state"] == "standby")' fs status; }
same "each rank has a line, and each standby" "pandofs - 1 clients
=======
RANK STATE MDS ACTIVITY DNS INOS DIRS CAPS
0 active MDS Reqs N
1 active MDS Reqs N
2 active MDS Reqs N
3 active MDS Reqs N
POOL TYPE USED AVAIL
meta metadata N
data data N
STANDBY MDS
MDS
MDS" "$(table)"
same "and all one version" 1 "$(grep -c "^MDS version: PandoFS [0-9]" status)"
same "JSON has the same" "clients mds_version mdsmap pools schema
caps dirs dns inos name rank rate state stays_for
name state" "$(said '[" ".join(sorted(a))] + sorted({" ".join(sorted(row)) for row in a["mdsmap"]})' fs status)"
same "the standbys are those of it" "$(sed '1,/^STANDBY MDS/d; /^MDS version/d; s/ //g' status | sort)" "$(standbys)"
check "nobody may take over" ask fs set pandofs joinable false
check "rank 2 dies" ask tell mds.2 crash
check "it has failed" within is 2 state failed
same "which is its line" "2 failed" "$(table | grep '^2 ')"
same "the others' are as before" "0 1 3" "$(table | sed -n 's/ active MDS Reqs N$//p' | xargs)"
same "its daemon stands by" 3 "$(standbys | wc -l)"
same "the version is of those that there are" "6 True" "$(said '[len(names := a["mds_version"][0]["daemon"]), all(names)]' fs status | xargs)"
check "health says so" grep -q FS_WITH_FAILED_MDS <(ask health detail)
check "joinable" ask fs joinable pandofs
check "all serve" within serve_all 4

# What is asked of what. The mount would not ask for what it knows: each change of attributes is one.
pinned p1 1
pinned p3 3
mkdir mnt/p1/sub mnt/p3/sub && touch mnt/p1/sub/{1..20} mnt/p3/sub/{1..20} || die "files"
# first BY: the first of `top`, and whether anything is asked of it.
first() { ask top --by "$1" | awk -v by="$1" 'NR == 3 { print $1, ((by == "rank" ? $5 : $3 + $4) > 0) }'; }
# most RANK: it is asked most of, after some more changes there.
most() { (cd "mnt/p$1/sub" && chmod 600 -- * && chmod 644 -- *) && [ "$(first subtree) $(first rank)" = "/p$1 1 $1 1" ]; }
for rank in 3 1; do check "top: most is asked of rank $rank, and in which directory" within most $rank; done
loaded() { getfattr --only-values -n pando.dir.load "$1" | grep -qE '(^| )writes=([1-9]|0\.0*[1-9])'; }
check "of which directory of it" loaded mnt/p1/sub
mkdir mnt/p1/quiet
same "not of one where nothing happens" 1 "$(loaded mnt/p1/quiet; echo $?)"
check "also of what another rank has" getfattr -n pando.dir.load mnt/p1
owner_of() { getfattr --only-values -n pando.dir.owner "$1" 2>err || cat err; }
same "whose what is" "0x0/0=0 0x0/0=1 0x0/0=3 0x0/0=3" "$(for each in mnt mnt/p1 mnt/p3 mnt/p3/sub; do owner_of $each && echo; done | xargs)"

# A move that is made, one that is given up, as a mount that has a file open does not answer, and what is refused.
mkdir mnt/d && echo text >mnt/d/file || die "a directory"
check "a subtree moves" "$PANDO" subtree move mnt/d 1
check "and is there" within owned /d 1
same "by an entry of its own" "1 carved -" "$(ask subtree ls | awk '$1 == "/d" { print $2, $3, $8 }')"
word=$("$PANDO" mount --format json "unix:$WORK/data/pando.sock" "$WORK/mnt2" 2>err) || die "mount: $(cat err)"
BEHIND=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' <<<"$word")
mkfifo go
# Not this shell: what ends while a file there is open in it waits for the mount.
(exec <mnt2/d/file && touch opened && read -r <go; cat >found) &
READER=$!
pids+=("$BEHIND" $READER)
check "a second mount opens a file" within [ -e opened ]
kill -STOP "$BEHIND"
check "a move of what a mount that stands still has open" "$PANDO" subtree move mnt/d 2
moves() { ask subtree ls | grep -q '^/d .* moves to 2: '; }
check "is under way" within moves
check "it is given up" "$PANDO" subtree cancel mnt/d
stays() { [ "$(ask subtree ls | awk '$1 == "/d" { print $2, $8 }')" = "1 -" ]; }
check "and stays where it was" within stays
check "whoever looks is served" grep -q text mnt/d/file
# Soon: it is evicted after a lease.
kill -CONT "$BEHIND"
same "what is not under way is not given up" "5 1" "$("$PANDO" subtree cancel mnt/d >out 2>&1; echo "$? $(grep -c ': it does not move$' out)")"
check "then it moves" "$PANDO" subtree move mnt/d 2
check "and is there" within owned /d 2
echo >go
wait $READER
same "what was open is read" text "$(cat found)"
refused() { "$PANDO" subtree "$@" >out 2>&1; echo "$? $(sed -n '1s/.*: //p' out)"; }
same "no such rank" 5 "$(refused move mnt/d 9 | cut -d' ' -f1)"
same "not the root" "2 the root directory stays with rank 0" "$(refused move mnt 1)"
same "no directory" "1 not a directory" "$(refused move mnt/d/file 1)"
same "none of ours" "3 not inside a PandoFS mount" "$(refused move "$WORK" 1)"
same "no rank" 2 "$(refused move mnt/d one | cut -d' ' -f1)"
same "where it is already is no error" "0 it is rank 2's already" "$("$PANDO" subtree move mnt/d 2 >out; echo "$? $(cat out)")"

# Which ranks may have slots and what nobody pinned, and how many.
slots() { said '(str(row["rank"]) + ":" + str(row["slots"]) for row in a["mdsmap"]["slots"])' fs get pandofs | xargs; }
have() { [ "$(slots)" = "$1" ]; }
mkdir mnt/hashed && setfattr -n pando.dir.placement -v hash mnt/hashed && mkdir mnt/hashed/{1..60} || die "placed by hash"
check "slots are divided among all" within have "0:1024 1:1024 2:1024 3:1024"
# sum: of what the files there say.
sum() { cat mnt/hashed/*/file | awk '{ sum += $1 } END { print sum }'; }
# owners: the ranks of the directories that slots place.
owners() { for each in mnt/hashed/*; do owner_of "$each" && echo; done | sort -u | xargs; }
all_have() { [ "$(owners)" = "0x0/0=0 0x0/0=1 0x0/0=2 0x0/0=3" ]; }
one_has() { [ "$(owners)" = "0x0/0=1" ]; }
check "and directories with them" within all_have
for n in {1..60}; do echo $n >mnt/hashed/$n/file || die "files"; done
same "three times the share" "rank_weight of rank 3 is 300" "$(ask fs set pandofs rank_weight 3=300)"
# The three others have 100 of 600 each: 682 or 683.
weighed() { [[ $(slots) =~ ^0:68[23]\ 1:68[23]\ 2:68[23]\ 3:2048$ ]]; }
check "is what it gets" within weighed
check "as before" ask fs set pandofs rank_weight 3=100
check "all are even again" within have "0:1024 1:1024 2:1024 3:1024"
same "only rank 1" "setting the metadata balancer rank mask to 0x2" "$(ask fs set pandofs bal_rank_mask 0x2)"
check "it gets all slots" within have "1:4096"
check "and the directory that was moved" within owned /d 1
check "it has them" within one_has
same "nor is it moved by hand" "5 it is pinned" "$("$PANDO" subtree move mnt/p3 1 >out 2>&1; echo "$? $(grep -o "it is pinned" out)")"
same "nor to a rank that the mask leaves out" "5 bal_rank_mask leaves rank 2 out" "$("$PANDO" subtree move mnt/hashed 2 >out 2>&1; echo "$? $(grep -o "bal_rank_mask leaves rank 2 out" out)")"
same "a pin stays" "3 pin" "$(ask subtree ls | awk '$1 == "/p3" { print $2, $3 }')"
same "the root, too" "0 root" "$(ask subtree ls | awk '$1 == "/" { print $2, $3 }')"
same "nothing is lost on the way" 1830 "$(sum)"
same "every rank" "setting the metadata balancer rank mask to all" "$(ask fs set pandofs bal_rank_mask all)"
check "all have slots again" within have "0:1024 1:1024 2:1024 3:1024"
check "and directories" within all_have

# A pin to a rank that is not there yet; ranks that go and come back.
mkdir mnt/later && echo later >mnt/later/file && setfattr -n ceph.dir.pin -v 4 mnt/later || die "a pin"
same "is remembered" 4 "$(getfattr --only-values -n ceph.dir.pin mnt/later)"
same "and is where it was" "0 pin" "$(ask subtree ls | awk '$1 == "/later" { print $2, $3 }')"
check "a fifth rank" ask fs set pandofs max_mds 5
check "it serves" within serve_all 5
check "and has what was pinned to it" within owned /later 4
check "it has its share of the slots" within have "0:820 1:819 2:819 3:819 4:819"
in_map() { [ "$(ask fs get pandofs | sed -n 's/^in\t//p')" = "$1" ]; }
check "two are wanted" ask fs set pandofs max_mds 2
check "the others go" within in_map 0,1
same "which ranks have something" "0 1" "$(ask subtree ls | awk 'NR > 1 { print $2 }' | sort -u | xargs)"
same "and slots" "0:2048 1:2048" "$(slots)"
same "the table has two" "0 1" "$(table | sed -n 's/ active MDS Reqs N$//p' | xargs)"
same "four stand by" 4 "$(standbys | wc -l)"
same "all is there" "1830 later text" "$(sum) $(cat mnt/later/file) $(cat mnt/d/file)"
same "the pin is remembered" 3 "$(getfattr --only-values -n ceph.dir.pin mnt/p3)"
check "five are wanted again" ask fs set pandofs max_mds 5
check "they serve" within serve_all 5
check "a pin is followed" within owned /p3 3
check "the other, too" within owned /later 4
check "all have slots" within have "0:820 1:819 2:819 3:819 4:819"
same "all is there again" "1830 later text" "$(sum) $(cat mnt/later/file) $(cat mnt/d/file)"

# Policies as programs find them: what is read back, what is taken away, and each error.
cat >policies.py <<'P'
import errno, os, sys

def tried(call, *what):
    try:
        value = call(*what)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok" if value is None else value if isinstance(value, list) else value.decode()

wrong = []
def same(name, wanted, found):
    if wanted != found:
        wrong.append(f"{name}: wanted {wanted}, found {found}")

def values(dir):
    rows = [("ceph.dir.pin", "1", "1"), ("pando.dir.pin", " 1 ", "1"), ("ceph.dir.pin.distributed", "1", "1"),
            ("ceph.dir.pin.random", "0.01", "0.01"), ("ceph.dir.bal.mask", "0x3", "0,1"), ("pando.dir.bal.mask", "4,0", "0,4"),
            ("ceph.dir.bal.mask", "all", "all"), ("pando.dir.placement", "hash", "hash")]
    for name, value, read in rows:
        unset = "inherit" if name == "pando.dir.placement" else "ENODATA"
        same(f"{name} before", unset, tried(os.getxattr, dir, name))
        same(f"{name} {value}", "ok", tried(os.setxattr, dir, name, value.encode()))
        same(f"{name} {value} read", read, tried(os.getxattr, dir, name))
        same("listed", [], tried(os.listxattr, dir))
        same(f"{name} removed", "ok", tried(os.removexattr, dir, name))
        same(f"{name} behind that", unset, tried(os.getxattr, dir, name))
        same(f"{name} removed again", "ENODATA", tried(os.removexattr, dir, name))
    for name, none in [("ceph.dir.pin", "-1"), ("ceph.dir.pin.distributed", "0"), ("ceph.dir.pin.random", "0"),
                       ("pando.dir.placement", "inherit")]:
        same(f"{name} {none}", "ok", tried(os.setxattr, dir, name, none.encode()))

def errors(dir):
    file, root = f"{dir}/file", os.path.dirname(dir)
    rows = [(dir, "ceph.dir.pin", "256", "EDOM"), (dir, "ceph.dir.pin", "-2", "EDOM"), (dir, "ceph.dir.pin", "one", "EINVAL"),
            (dir, "ceph.dir.pin.distributed", "2", "EINVAL"),
            (dir, "ceph.dir.pin.random", "1.5", "EDOM"), (dir, "ceph.dir.pin.random", "0.02", "EINVAL"),
            (dir, "ceph.dir.pin.random", "half", "EINVAL"),
            (dir, "ceph.dir.bal.mask", "0,256", "EDOM"), (dir, "ceph.dir.bal.mask", "0x0", "EINVAL"),
            (dir, "ceph.dir.bal.mask", "0xg", "EINVAL"), (root, "ceph.dir.bal.mask", "1", "EINVAL"),
            (dir, "pando.dir.placement", "slots", "EINVAL"), (dir, "ceph.dir.placement", "hash", "EINVAL"),
            (dir, "ceph.dir.nothing", "1", "EINVAL"),
            (dir, "pando.dir.owner", "1", "EPERM"), (dir, "pando.dir.load", "1", "EPERM"), (dir, "ceph.dir.entries", "1", "EPERM")]
    rows += [(at, name, "1", "EINVAL") for at in (file, root) for name in ("ceph.dir.pin", "ceph.dir.pin.distributed")]
    rows += [(at, "ceph.dir.pin.random", "0.01", "EINVAL") for at in (file, root)]
    rows += [(file, "ceph.dir.bal.mask", "0", "EINVAL"), (file, "pando.dir.placement", "hash", "EINVAL")]
    for at, name, value, wanted in rows:
        same(f"{at} {name} {value}", wanted, tried(os.setxattr, at, name, value.encode()))
    for name in ("ceph.dir.pin", "ceph.dir.pin.distributed", "ceph.dir.pin.random", "ceph.dir.bal.mask", "pando.dir.placement"):
        same(f"{name} of a file", "EINVAL", tried(os.getxattr, file, name))

def strangers(dir):
    os.seteuid(65534)
    open(f"{dir}/may write", "w").close()
    for name, value in [("ceph.dir.pin", "1"), ("ceph.dir.pin.distributed", "1"), ("pando.dir.pin.random", "0.01"),
                        ("ceph.dir.bal.mask", "0"), ("pando.dir.placement", "hash")]:
        same(f"{name} set", "EPERM", tried(os.setxattr, dir, name, value.encode()))
        same(f"{name} removed", "EPERM", tried(os.removexattr, dir, name))
    same("whose it is", "0x0/0=0", tried(os.getxattr, dir, "pando.dir.owner"))

globals()[sys.argv[1]](os.path.abspath(sys.argv[2]))
sys.exit("\n".join(wrong) or 0)
P
mkdir mnt/said && chmod 777 mnt/said && : >mnt/said/file || die "a directory"
check "each policy is read back, is not listed, and is taken away" python3 policies.py values mnt/said
check "each mistake has its error" python3 policies.py errors mnt/said
check "who is not root sets none" python3 policies.py strangers mnt/said
mkdir mnt/masked && setfattr -n ceph.dir.bal.mask -v 1,2 mnt/masked && : >mnt/masked/file || die "a mask"
check "a directory with a mask is spread" "$PANDO" dirfrag split mnt/masked 2
masked() { [ "$("$PANDO" dirfrag ls mnt/masked | awk 'NR > 1 { print $2 }' | sort -u | xargs)" = "1 2" ]; }
check "over the ranks of its mask" within masked
same "nothing is wrong with the ranks" "" "$(ask health detail | grep -E 'MDS_|FS_')"
for each in mnt mnt2; do
    "$PANDO" umount "$WORK/$each" >err 2>&1 || die "umount: $(cat err)"
done
kill "$SERVER" && wait_gone "$SERVER"
check "fsck" clean "$WORK/data"
