# What an operator sees of a server that is used: health, requests under way, rates, counters, the metrics page.
. "$(dirname "$0")/lib.sh"
require flock python3 setpriv
TEST=watch
cd "$WORK" || exit 1

# Below the ports that the system gives to clients.
port=$((20000 + RANDOM % 12000))
up ./data ./a -o metrics=127.0.0.1:$port
ask() { "$PANDO" "$@" --cluster ./data; }
# near_full TEXT: without what a nearly full disk of this machine adds.
near_full() { sed -e 's/^HEALTH_WARN 1 pool(s) nearfull$/HEALTH_OK/' -e '/POOL_NEARFULL/,+1d'; }

same "a new server is healthy" HEALTH_OK "$(ask health detail | near_full)"
check "its status says so" bash -c '"$0" status --cluster ./data | grep -q "health: *HEALTH_"' "$PANDO"
check "health in JSON has Ceph's keys" bash -c '"$0" health --cluster ./data --format json | python3 -c "
import json, sys
answer = json.load(sys.stdin)
assert answer[\"status\"].startswith(\"HEALTH_\") and answer[\"mutes\"] == [] and isinstance(answer[\"checks\"], dict)"' "$PANDO"

# Somebody waits for a lock: seen with where and for what; it is no slow request.
touch a/held
exec 5>a/held && flock 5
flock a/held true 5>&- &
waiter=$!
pids+=($waiter)
for n in $(seq 100); do ask ops | grep -q 'file lock' && break; sleep 0.05; done
line=$(ask ops | tail -n +2)
same "who waits for a lock is listed" "setfilelock /held file lock" "$(awk '{ print $3, $4, $5, $6 }' <<<"$line")"
same "nothing is slow" "AGE  CLIENT  OP  PATH  WAITING-FOR" "$(ask ops --slow)"
same "nor blocked for long" "AGE  CLIENT  OP  PATH  WAITING-FOR" "$(ask ops --blocked)"
exec 5>&-
wait $waiter
for n in $(seq 100); do [ "$(ask ops | wc -l)" -gt 1 ] || break; sleep 0.05; done
same "and then gone" "AGE  CLIENT  OP  PATH  WAITING-FOR" "$(ask ops)"

mkdir a/d
for n in $(seq 200); do echo "$n" >a/d/$n; done
cat a/d/* >/dev/null
dd if=/dev/zero of=a/large bs=1M count=8 status=none
# rank 0's: NAME{LABELS}, or NAME where it has no other label.
count() {
    local series=$1
    case $series in *}) series=${series%\}},rank=\"0\"} ;; *) series=$series{rank=\"0\"} ;; esac
    page /metrics | awk -v series="$series" '$1 == series { print $2 }'
}
check "creates are counted" [ "$(count 'pando_mds_requests_total{op="create"}')" -ge 200 ]
check "bytes are counted" [ "$(count pando_mds_written_bytes_total)" -ge $((8 << 20)) ]
same "one session" 1.0 "$(count pando_mds_sessions)"
same "another page is not there" "HTTP/1.1 404 Not Found" "$(page /x | head -n 1)"
check "perf dump has Ceph's names" bash -c '"$0" perf dump --cluster ./data --format json | python3 -c "
import json, sys
answer = json.load(sys.stdin)
latency = answer[\"mds_server\"][\"req_create_latency\"]
assert latency[\"avgcount\"] >= 200 and set(latency) == {\"avgcount\", \"sum\", \"avgtime\"}, latency
assert answer[\"mds\"][\"request\"] >= answer[\"mds\"][\"reply\"] >= 200, answer[\"mds\"]"' "$PANDO"
check "perf reset" ask perf reset
dump=$(ask perf dump)
check "counts from zero" [ "$(sed -n 's/^mds_server.handle_client_request //p' <<<"$dump")" -lt 200 ]
same "creates, too" "" "$(grep req_create_latency <<<"$dump")"
check "the page goes on" [ "$(count 'pando_mds_requests_total{op="create"}')" -ge 200 ]
same "top shows the client" "$WORK/a" "$(ask top --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)["rows"][0]["mount"])')"
for n in $(seq 50); do stat a/d/$n >/dev/null; done
check "with a rate" [ "$(ask top --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)["rows"][0]["ops"])')" -gt 0 ]
check "by user" bash -c '"$0" top --by user --cluster ./data | grep -q "^0  *1 "' "$PANDO"
check "cache status" bash -c '"$0" cache status --cluster ./data | grep -q "^inodes: *[0-9]"' "$PANDO"
word=$(ask health --check)
code=$?
case $word in HEALTH_OK*) wanted=0 ;; HEALTH_WARN*) wanted=1 ;; *) wanted=2 ;; esac
same "health --check" $wanted $code

# Paths are for root's eyes; whether all is well is for everybody's.
cp "$PANDO" ./pando
text=$(setpriv --reuid 1234 --clear-groups ./pando ops --cluster "unix:$WORK/data/pando.sock" 2>&1)
same "ops is root's" 4 $?
check "and says so" grep -q 'only root may do this' <<<"$text"
check "health is everybody's" setpriv --reuid 1234 --clear-groups ./pando health --cluster "unix:$WORK/data/pando.sock"

text=$("$PANDO" mount ./data ./b -o metrics=127.0.0.1:1 2>&1)
same "a mount that attaches has no page" 5 $?
same "and says who has" "pando mount: metrics=127.0.0.1:1: the server of ./data is another process
  do: \`pando serve DIR --metrics HOST:PORT\`" "$text"
text=$("$PANDO" mount ./other ./b -o metrics=127.0.0.1:$port 2>&1)
same "a taken port ends the mount" 1 $?
check "and is named" grep -q "metrics at 127.0.0.1:$port: address" <<<"$text"
check "and leaves no file system behind" [ ! -e other/pando.fs ]
down ./a
check "the page goes with its server" bash -c "! exec 6<>/dev/tcp/127.0.0.1/$port"

# Warming: what is asked for afterwards needs nothing of the store.
serve ./data --metrics 127.0.0.1:$port
check "a mount" "$PANDO" mount unix:./data/pando.sock ./a
check "warmup" "$PANDO" warmup a --metadata
loads=$(count pando_mds_loads_total)
check "something was loaded for it" [ "${loads:-0}" -gt 0 ]
same "all is there" 200 "$(ls -l a/d | grep -c '^-')"
same "and nothing was loaded for it" "$loads" "$(count pando_mds_loads_total)"
text=$("$PANDO" warmup a/d 2>&1)
same "file data, too" "read 200 files" "$(sed -n 's/^\(read 200 files\),.*/\1/p' <<<"$text")"
text=$("$PANDO" warmup /tmp 2>&1)
same "elsewhere is refused" 3 $?
down ./a

# What the system has not cleared away yet holds the page's place, as it holds the folder.
for n in $(seq 5); do
    kill -9 $SERVER
    serve ./data --metrics 127.0.0.1:$port
done
same "a server that follows one that was killed has its page" 1 "$(page /metrics | grep -c '^pando_mds_loads_total{')"
kill -TERM $SERVER
wait $SERVER
check "fsck" clean ./data

# A file system that a user makes and serves is his own.
mkdir user
chown 1234:1234 user
PANDO=$WORK/as-user
printf '#!/bin/sh\nexec setpriv --reuid 1234 --regid 1234 --clear-groups "%s" "$@"\n' "$WORK/pando" >"$PANDO"
chmod 755 "$PANDO"
check "a user's format" "$PANDO" format user/fs
serve ./user/fs
check "he may ask his server" "$PANDO" ops --cluster ./user/fs
check "and have it do things" "$PANDO" cache drop --cluster ./user/fs
mkdir u
check "a mount of it" "$WORK/pando" mount unix:./user/fs/pando.sock ./u
same "he owns its root" 1234:1234 "$(stat -c %u:%g u)"
PANDO=$WORK/pando
down ./u
kill -TERM $SERVER
wait $SERVER
