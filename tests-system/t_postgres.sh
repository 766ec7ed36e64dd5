# PostgreSQL on a mount, whose server is killed and started again while transactions run: it sees a pause and no error, and what was
# committed is there, also after the database itself was killed.
. "$(dirname "$0")/lib.sh"
require su
TEST=postgres
VIA=socket KILLS=4
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -x "$programs/pgbench" ] || die "PostgreSQL is missing: scripts/install-prerequisites.sh --tests"
up "$WORK/data" "$WORK/mnt"
port=$((20000 + $$ % 20000))
mkdir "$WORK/mnt/db" "$WORK/sockets" && chown postgres "$WORK/mnt/db" "$WORK/sockets" || die "chown"
# as PROGRAM ARGS...: as the user that PostgreSQL insists on.
as() { su postgres -s /bin/sh -c '"$0" "$@"' -- "$programs/$1" "${@:2}"; }
sql() { as psql -h "$WORK/sockets" -p "$port" -d postgres -Atc "$1"; }
start() { as pg_ctl -D "$WORK/mnt/db" -l "$WORK/sockets/log" -o "-p $port -k '$WORK/sockets' -c listen_addresses=''" -t 120 -w start; }

check "initdb" as initdb -A trust -D "$WORK/mnt/db"
check "start" start
postmaster=$(head -n 1 "$WORK/mnt/db/postmaster.pid") && pids+=("$postmaster")
bench() { as pgbench -h "$WORK/sockets" -p "$port" "$@" postgres; }
check "pgbench: tables" bench -i -q -s 2
before=$(wc -l <"$WORK/kills")
check "pgbench: 4 clients, 20 s" bench -c 4 -T 20
[ "$(wc -l <"$WORK/kills")" -gt "$before" ] || fail "the server was killed meanwhile"
same "no transaction failed" 0 "$(sed -n 's/^number of failed transactions: \([0-9]*\) .*/\1/p' "$WORK/out")"
# balanced: each account, teller and branch has what the history says.
balanced() { sql "select (select sum(abalance) from pgbench_accounts) = h and (select sum(tbalance) from pgbench_tellers) = h and (select sum(bbalance) from pgbench_branches) = h from (select sum(delta) h from pgbench_history) x"; }
same "the books balance" t "$(balanced)"
count=$(sql 'select count(*) from pgbench_history')
# As a crash: no checkpoint, nothing closed.
check "its processes abort" as pg_ctl -D "$WORK/mnt/db" -m immediate stop
check "start after that" start
pids+=("$(head -n 1 "$WORK/mnt/db/postmaster.pid")")
same "nothing committed is lost" "$count" "$(sql 'select count(*) from pgbench_history')"
same "the books balance after that" t "$(balanced)"
same "no error in its log" "" "$(grep -E 'PANIC|I/O error|Input/output' "$WORK/sockets/log")"
check "stop" as pg_ctl -D "$WORK/mnt/db" -m fast stop
down "$WORK/mnt"
check "fsck afterwards" clean "$WORK/data"
