"""Several write one SQLite database by turns, and the server dies over and over.

writers.py write DB NAME SECONDS LOG: one of them. A row for each transaction, whose journal is a file that the commit removes. A
    line of LOG for each: "ok ROW" or "err ROW WHY".
writers.py judge DB LOG...: prints what is wrong with the database, and exits 1 if anything is.
"""
import sqlite3
import sys
import time


def write(path, name, seconds, log):
    until, number, base = time.time() + float(seconds), 0, None
    with open(log, "w", buffering=1) as log:
        while time.time() < until:
            number += 1
            try:
                if base is None:
                    base = sqlite3.connect(path, timeout=30, isolation_level=None)
                    base.execute("pragma synchronous=full")
                base.execute("begin immediate")
                base.execute("insert into t(b) values(?)", (f"{name}{number}",))
                base.execute("commit")
                log.write(f"ok {name}{number}\n")
            except sqlite3.Error as error:
                log.write(f"err {name}{number} {error}\n")
                base = None
            time.sleep(0.005)


def judge(path, logs):
    base = sqlite3.connect(path, timeout=60)
    rows = {row for (row,) in base.execute("select b from t")}
    lines = [line.split(maxsplit=2) for log in logs for line in open(log)]
    wrong = [f"committed and not there: {line[1]}" for line in lines if line[0] == "ok" and line[1] not in rows]
    wrong += [" ".join(line).strip() for line in lines if line[0] == "err"]
    wrong += [text for (text,) in base.execute("pragma integrity_check") if text != "ok"]
    print(f"{len(rows)} rows", *wrong[:10], sep="\n")
    return bool(wrong) or len(rows) < 50


if len(sys.argv) == 6 and sys.argv[1] == "write":
    write(*sys.argv[2:])
elif len(sys.argv) > 3 and sys.argv[1] == "judge":
    sys.exit(judge(sys.argv[2], sys.argv[3:]))
else:
    sys.exit(__doc__)
