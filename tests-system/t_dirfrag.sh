# One directory at three ranks: an operator spreads it, and one that hash placement gives to several ranks is spread when it grows. Programs
# make, list, move and remove names in it through a mount, while ranks and then the whole process die; it goes back to one part, and is
# spread again; nothing is missed or seen twice, and the folder is clean. What was spread by itself, also because much is asked of it, goes back
# to one part by itself.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require python3 setfattr getfattr
TEST=dirfrag
NAMES=3000
cd "$WORK" || exit 1

serve_ranks 3 1
all() { serve_all 3; }
# ranks DIR: the ranks that have parts of it.
ranks() { "$PANDO" dirfrag ls "$1" | awk 'NR > 1 { print $2 }' | sort -nu | xargs; }
in_one_part() { [ "$("$PANDO" dirfrag ls "$1" | awk 'NR > 1 { print $1 }')" = 0x0/0 ]; }
at_three() { [ "$(ranks "$1")" = "0 1 2" ]; }
# listed DIR: how many names it has, each counted once, and how many it says that it has.
listed() { echo "$(find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | wc -l) $(find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -u | wc -l) $(stat -c %s "$1")"; }

check "three are wanted" ask fs set pandofs max_mds 3
check "three serve" within all
"$PANDO" -q mount unix:./data/pando.sock ./mnt 2>err || die "mount: $(cat err)"
mkdir mnt/one
(cd mnt/one && seq -f 'f%.0f' $NAMES | xargs touch) || die "touch"
same "in one part" "FRAG   RANK
0x0/0  0" "$("$PANDO" dirfrag ls mnt/one)"
same "nothing to put together" "5 1" "$("$PANDO" dirfrag merge mnt/one >out 2>&1; echo "$? $(grep -c ': its names are in one part' out)")"
check "an operator spreads it" "$PANDO" dirfrag split mnt/one
check "it is at three ranks" within at_three mnt/one
same "all names are there once" "$NAMES $NAMES $NAMES" "$(listed mnt/one)"
same "not into so many" 2 "$("$PANDO" dirfrag split mnt/one 9 >out 2>&1; echo $?)"
same "it is not divided again" "5 1" "$("$PANDO" dirfrag split mnt/one 4 >out 2>&1; echo "$? $(grep -c ': its names are in 8 parts already' out)")"
same "eight parts" 8 "$("$PANDO" --format json dirfrag ls mnt/one | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["dirfrags"]))')"

(cd mnt/one && seq -f 'g%.0f' $NAMES | xargs touch) || die "touch"
same "as many again" "$((2 * NAMES)) $((2 * NAMES)) $((2 * NAMES))" "$(listed mnt/one)"
check "names move from part to part" python3 - <<'PY'
import os
os.chdir('mnt/one')
for n in range(1, 501):
    os.rename(f'g{n}', f'h{n}')
for n in range(1, 101):
    os.link(f'f{n}', f'l{n}')
    os.unlink(f'f{n}')
    assert os.stat(f'l{n}').st_nlink == 1
open('content', 'w').write('bytes')
os.fsync(os.open('content', os.O_RDONLY))
os.fsync(os.open('.', os.O_RDONLY))
PY
names=$((2 * NAMES + 1))
same "none more, none less" "$names $names $names" "$(listed mnt/one)"
for rank in 1 2 0; do
    before=$(life $rank)
    check "rank $rank dies" ask tell mds.$rank crash
    check "its next life serves" within later $rank "$before"
    same "and all names are there" "$names $names $names" "$(listed mnt/one)"
done
kill9 "$SERVER"
# From here on so many names have one spread by itself that hash placement has put where it is; this one it has not.
LARGE=2000
echo "mds_bal_split_size = $LARGE" >>"$WORK/pando.toml"
serve ./data --ranks 3 --conf "$WORK/pando.toml"
check "killed: three serve again" within all
same "killed: all names are there" "$names $names $names" "$(listed mnt/one)"
same "and bytes" bytes "$(cat mnt/one/content)"
mkdir mnt/one/sub mnt/elsewhere
check "directories in it" sh -c 'for n in $(seq 20); do mkdir mnt/one/sub.$n && echo $n >mnt/one/sub.$n/file || exit; done'
same "what is in them" 210 "$(cat mnt/one/sub.*/file | awk '{ sum += $1 } END { print sum }')"

# The way back, while names come and go.
(cd mnt/one && for n in $(seq 200); do : >during.$n && rm during.$n || exit; done) & busy=$!
check "an operator has it put together" "$PANDO" dirfrag merge mnt/one
check "it is in one part" within in_one_part mnt/one
wait "$busy" || die "names while it was merged"
names=$((names + 21))
same "merged: all names are there once" "$names $names $names" "$(listed mnt/one)"
for rank in 0 1; do
    before=$(life $rank)
    check "merged: rank $rank dies" ask tell mds.$rank crash
    check "merged: its next life serves" within later $rank "$before"
    same "merged: and all names are there" "$names $names $names" "$(listed mnt/one)"
done
same "bytes after that" bytes "$(cat mnt/one/content)"
check "distributed" setfattr -n ceph.dir.pin.distributed -v 1 mnt/one
# Its rank has begun just now: parts that it may not give away yet go a little later.
check "it is spread in another way" "$PANDO" dirfrag split mnt/one 2
check "it is at three ranks again" within at_three mnt/one
same "there it is not merged" "5 1" "$("$PANDO" dirfrag merge mnt/one >out 2>&1; echo $? $(grep -c ': `dir.pin.distributed` is set$' out))"
check "no more" setfattr -n ceph.dir.pin.distributed -v 0 mnt/one
same "again: all names are there once" "$names $names $names" "$(listed mnt/one)"
kill9 "$SERVER"
serve ./data --ranks 3 --conf "$WORK/pando.toml"
check "killed again: three serve" within all
same "killed again: all names are there" "$names $names $names" "$(listed mnt/one)"
check "it is put together again" "$PANDO" dirfrag merge mnt/one
check "and is in one part" within in_one_part mnt/one
same "merged again: all names are there" "$names $names $names" "$(listed mnt/one)"

# One that grows by itself.
same "any rank may be given some" "setting the metadata balancer rank mask to all" "$(ask fs set pandofs bal_rank_mask -1)"
check "hash placement" ask fs set pandofs placement hash
mkdir mnt/grows mnt/grows/dir
(cd mnt/grows/dir && seq -f 'f%.0f' $((LARGE + 500)) | xargs touch) || die "touch"
check "it is spread when it has grown" within at_three mnt/grows/dir
same "all names are there once" "$((LARGE + 500)) $((LARGE + 500)) $((LARGE + 500))" "$(listed mnt/grows/dir)"
# And is merged when few names are left, whoever dies meanwhile.
(cd mnt/grows/dir && seq -f 'f%.0f' 31 $((LARGE + 500)) | xargs rm) || die "rm"
before=$(life 1)
check "rank 1 dies" ask tell mds.1 crash
check "rank 1: its next life serves" within later 1 "$before"
check "it is merged by itself" within in_one_part mnt/grows/dir
same "30 names are left, each once" "30 30 30" "$(listed mnt/grows/dir)"
# Two more names would be one too many. Spreading comes some time after its reason: another directory gets its own later, and has been
# spread when this one is looked at.
(cd mnt/grows/dir && seq -f 'g%.0f' $((LARGE - 31)) | xargs touch) || die "touch"
mkdir mnt/grows/other && (cd mnt/grows/other && seq -f 'f%.0f' $((LARGE + 1)) | xargs touch) || die "touch"
check "another one is spread when it has more" within at_three mnt/grows/other
check "$((LARGE - 1)) names are no reason to spread it" in_one_part mnt/grows/dir

# One of which much is asked: the same with few names.
"$PANDO" -q umount ./mnt 2>err || die "umount: $(cat err)"
kill -TERM "$SERVER" && wait_gone "$SERVER"
echo 'mds_bal_split_wr = 400' >>"$WORK/pando.toml"
serve ./data --ranks 3 --conf "$WORK/pando.toml"
check "three serve that spread what is hot" within all
"$PANDO" -q mount unix:./data/pando.sock ./mnt 2>err || die "mount: $(cat err)"
mkdir mnt/grows/hot
(cd mnt/grows/hot && seq -f 'f%.0f' 200 | xargs touch) || die "touch"
# written_to: everything in it changes once more, and a little of the large one; whether it is at three ranks.
written_to() { (cd mnt/grows/hot && chmod 600 f* ../dir/f1 && chmod 644 f* ../dir/f1) && at_three mnt/grows/hot; }
check "it is spread while much is asked of it" within written_to
# That rested after its merge; this life of its rank knows of no rest.
check "the large one, of which little is asked, is not" in_one_part mnt/grows/dir
touch mnt/grows/dir/last mnt/grows/dir/more || die "touch"
check "two more names are a reason" within at_three mnt/grows/dir
same "they are there once, and all others" "$((LARGE + 1)) $((LARGE + 1)) $((LARGE + 1))" "$(listed mnt/grows/dir)"
same "200 names are there once" "200 200 200" "$(listed mnt/grows/hot)"
(cd mnt/grows/hot && seq -f 'f%.0f' 41 200 | xargs rm) || die "rm"
check "it is merged when it is cold" within in_one_part mnt/grows/hot
same "40 names are left, each once" "40 40 40" "$(listed mnt/grows/hot)"
# A pin of one that was spread by itself is for all of it.
(cd mnt/grows/hot && seq -f 'f%.0f' 41 200 | xargs touch) || die "touch"
check "it is spread again" within written_to
check "it is pinned" setfattr -n ceph.dir.pin -v 2 mnt/grows/hot
at_two_alone() { in_one_part "$1" && [ "$(ranks "$1")" = 2 ]; }
check "and comes together there" within at_two_alone mnt/grows/hot
same "pinned: all names are there once" "200 200 200" "$(listed mnt/grows/hot)"
check "a tree with it is removed" rm -r mnt/grows
check "and the other" rm -r mnt/one
same "nothing of them is left" elsewhere "$(ls mnt)"
"$PANDO" -q umount ./mnt 2>err || die "umount: $(cat err)"
kill -TERM "$SERVER" && wait_gone "$SERVER"
check "fsck" clean ./data
