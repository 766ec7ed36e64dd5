# Trees are moved from rank to rank by rename, by two mounts at once, while ranks and the server die; nothing is lost, and no directory comes below itself.
. "$(dirname "$0")/lib.sh"
. "$HERE/ranks.sh"
require setfattr
TEST=dirs_ranks
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
# moved FROM TO: by one rename, as no copy.
moved() {
    local before
    before=$(stat -c %i "$1") && python3 -c 'import os, sys; os.rename(sys.argv[1], sys.argv[2])' "$1" "$2" && [ "$(stat -c %i "$2")" = "$before" ]
}
fails() { ! "$@" 2>/dev/null; }
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
check "into itself" fails moved mnt/c/t mnt/c/t/1/t
check "what it is in into it" fails moved mnt/c mnt/c/t/1/c
check "a tree below another one's" moved mnt/b mnt/c/t/b
check "which does not go below that" fails moved mnt2/c mnt2/c/t/b/c
check "and back" moved mnt2/c/t/b mnt2/b
mkdir mnt/b/empty mnt/b/full && touch mnt/b/full/x || die "directories"
check "over one that is not empty" fails moved mnt/c/t mnt/b/full
check "over an empty one" moved mnt/c/t mnt/b/empty
check "that is it" whole mnt2/b/empty
check "by mv" mv mnt2/b/empty mnt2/a/t
for dir in a b c; do
    check "links of $dir" links mnt/$dir
done

# One tree goes round while ranks die, another one by the other mount.
tree mnt/b/u || die "another tree"
round() {
    local dir=$1 name=$2 n from to
    from=$3
    for n in $(seq 30); do
        to=$(echo a b c | cut -d ' ' -f $((RANDOM % 3 + 1)))
        [ "$from" = "$to" ] || mv -T "$dir/$from/$name" "$dir/$to/$name" || return
        from=$to
        whole "$dir/$from/$name" || return
    done
}
round mnt t a &
ONE=$!
round mnt2 u b &
OTHER=$!
for rank in 0 1 2 1; do
    sleep 1
    check "rank $rank dies" harm $rank crash
done
check "one went round" wait $ONE
check "the other one, too" wait $OTHER
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
