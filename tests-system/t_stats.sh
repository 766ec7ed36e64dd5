# What a mount tells of itself: `pando stats`, and the attribute of its root that it comes from.
. "$(dirname "$0")/lib.sh"
require getfattr
TEST=stats
cd "$WORK" || exit 1

"$PANDO" format ./data >out 2>&1 || die "$(cat out)"
serve ./data
server=$SERVER
up unix:./data/pando.sock ./a
mkdir a/d && echo hello >a/d/f && cat a/d/f >/dev/null
number() { getfattr --only-values -n pando.stats ./a 2>/dev/null | grep -o "\"$1\":[0-9]*" | cut -d: -f2; }
check "the numbers are there" [ "$(number requests)" -gt 4 ]
same "written" 6 "$(number written_bytes)"
check "and what is not the root has none" bash -c '! getfattr -n pando.stats ./a/d 2>/dev/null'
check "they are in no list" bash -c '! getfattr -d -m - ./a 2>/dev/null | grep -q stats'
check "nor may they be set" bash -c '! setfattr -n pando.stats -v x ./a 2>/dev/null'
(while :; do stat a/d/f a/none$RANDOM; done >/dev/null 2>&1) &
load=$!
pids+=($load)
"$PANDO" stats ./a --interval 0.2 --count 3 >out 2>err
same "three lines below a header" "4 0" "$(wc -l <out) $(wc -c <err)"
check "with requests in them" awk 'NR > 1 { gsub(",", "", $1); if ($1 < 1) exit 1 }' out
"$PANDO" --format json stats ./a/d --interval 0.2 --count 2 >out 2>err
same "JSON lines" "2 2" "$(wc -l <out) $(grep -c '"schema":1' out)"
timeout 20 "$PANDO" stats ./a --interval 0.1 2>err | head -n 2 >out
same "it ends with its reader" 0 "${PIPESTATUS[0]}"
kill $load
wait $load 2>/dev/null
text=$(setpriv --reuid 65534 --clear-groups "$PANDO" stats ./a --count 1 2>&1)
same "of others it is refused" 4 $?
check "in words" grep -q "only root and whoever mounted it" <<<"$text"
"$PANDO" stats ./data --count 1 >out 2>&1
same "what is no mount is named as such" 5 $?
down ./a

# A mount that wants to keep little: what it keeps is bounded, what it shows is right.
up unix:./data/pando.sock ./a
for n in $(seq 1000); do echo "$n" >a/d/$n; done
down ./a
up unix:./data/pando.sock ./a -o caps_max=20
same "it sees everything" 100 "$(cat a/d/[0-9] a/d/[0-9][0-9] a/d/100 | wc -l)"
same "it keeps no more than it asked for" yes "$([ "$("$PANDO" client ls --cluster ./data --format json |
    grep -o '"caps":[0-9]*' | cut -d: -f2)" -le 20 ] && echo yes)"
down ./a
# One whose kernel is to know little. What it forgets it is told of again.
up unix:./data/pando.sock ./a -o client_cache_size=100
for round in $(seq 5); do
    ls -l a/d >/dev/null
    let_pass 0.3 "another thread has the kernel forget"
    echo "$round" >a/d/$round
done
# The message by which a mount has its kernel forget (NOTIFY_PRUNE) is of Linux 6.18: before, the option has no effect.
if [ "$(printf '%s\n' 6.18 "$(uname -r)" | sort -V | head -n 1)" = 6.18 ]; then
    for n in $(seq 100); do [ "$(number nodes)" -le 200 ] && break; stat a/d/x$n >/dev/null 2>&1; echo x >a/d/x; rm a/d/x; sleep 0.1; done
    check "its kernel forgets ($(number nodes) of 1000)" [ "$(number nodes)" -le 200 ]
else
    check "a kernel before 6.18 ($(uname -r)) forgets nothing for it" [ "$(number nodes)" -gt 200 ]
fi
same "and sees everything" 1000 "$(cat a/d/[0-9]* | wc -l)"
down ./a
kill -TERM $server
wait $server
check "fsck" clean ./data
