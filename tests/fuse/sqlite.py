# SPDX-License-Identifier: BSD-2-Clause
"""SQLite by several processes on a mount, writers killed at random moments: what a commit returned
for is there afterwards, row by row, and nothing half.

usage: sqlite.py load DIRECTORY LOG JOURNAL SYNC SECONDS SEED
       sqlite.py check DIRECTORY LOG

A row is (writer, number, payload, digest). A writer appends its number to LOG/WRITER only after
COMMIT returned; so the table holds every logged number, and at most one more a life of the writer.
The log lies outside of the mount.
"""
import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

WRITERS = 3


def connect(top):
    db = sqlite3.connect(f"{top}/db", timeout=60, isolation_level=None)
    db.execute("PRAGMA cache_size = 50")
    return db


def payload(writer, number):
    r = random.Random(writer << 32 | number)
    return r.randbytes(r.choice((10, 500, 5000, 30000)))


def write(top, log, writer, sync):
    db = connect(top)
    db.execute(f"PRAGMA synchronous = {sync}")
    (number,) = db.execute("SELECT coalesce(max(number), 0) FROM t WHERE writer = ?",
                           (writer,)).fetchone()
    with open(f"{log}/{writer}", "ab", buffering=0) as out:
        while True:
            number += 1
            data = payload(writer, number)
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO t VALUES (?, ?, ?, ?)",
                       (writer, number, data, hashlib.sha1(data).digest()))
            db.execute("UPDATE sum SET n = n + 1")
            if number % 7 == 0:  # free pages, so that they are used again
                db.execute("UPDATE t SET payload = x'', digest = ? WHERE writer = ? AND number < ?",
                           (hashlib.sha1(b"").digest(), writer, number - 20))
            db.execute("COMMIT")
            out.write(b"%d\n" % number)


def check(top, log):
    """In one read transaction, after the log was read: the rest may go on writing meanwhile."""
    logged = {}
    for w in range(WRITERS):
        if os.path.exists(f"{log}/{w}"):
            with open(f"{log}/{w}", "rb") as f:
                logged[w] = [int(n) for n in f.read().split(b"\n")[:-1]]
    db = connect(top)
    db.execute("BEGIN")
    rows = {w: set() for w in range(WRITERS)}
    for w, n, data, digest in db.execute("SELECT * FROM t"):
        if hashlib.sha1(data).digest() != digest or data not in (b"", payload(w, n)):
            sys.exit(f"row {w}/{n} is damaged")
        rows[w].add(n)
    for w, numbers in logged.items():
        lost = set(numbers) - rows[w]
        if lost:
            sys.exit(f"committed rows of writer {w} are lost: {sorted(lost)[:10]}")
    total = sum(map(len, rows.values()))
    (n,) = db.execute("SELECT n FROM sum").fetchone()
    if n != total:
        sys.exit(f"half a transaction: {total} rows, counted {n}")
    answer = db.execute("PRAGMA integrity_check").fetchall()
    db.execute("COMMIT")
    if answer != [("ok",)]:
        sys.exit(f"integrity_check: {answer[:3]}")
    return total


def drop(top):
    """The kernel's clean pages of these files: the next reads come from the daemon."""
    for name in os.listdir(top):
        try:
            fd = os.open(f"{top}/{name}", os.O_RDONLY)
        except FileNotFoundError:
            continue
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def apart(what, top, log):
    """In a process of its own: closing any descriptor of a file gives up the locks that the process
    has on it, also those of a connection that Python has not let go of yet."""
    done = subprocess.run([sys.executable, __file__, what, top, log], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"{what}: exit {done.returncode}")
    return done.stdout.decode().strip()


def logged_bytes(log):
    return sum(os.path.getsize(f"{log}/{f}") for f in os.listdir(log))


def load(top, log, journal, sync, seconds, seed):
    rng = random.Random(seed)
    db = connect(top)
    if db.execute(f"PRAGMA journal_mode = {journal}").fetchone() != (journal,):
        sys.exit(f"no journal mode {journal} here")
    db.execute("CREATE TABLE t(writer, number, payload, digest, PRIMARY KEY(writer, number))")
    db.execute("CREATE TABLE sum(n)")
    db.execute("INSERT INTO sum VALUES (0)")
    db.close()

    def start(w):
        return subprocess.Popen([sys.executable, __file__, "write", top, log, str(w), sync])

    writers = [start(w) for w in range(WRITERS)]
    kills = checks = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or kills < 3:
        enough = logged_bytes(log) + rng.randrange(2, 80)  # a few rows
        while logged_bytes(log) < enough:
            time.sleep(0.001)
        for p in writers:
            if p.poll() is not None:
                sys.exit(f"a writer ended by itself: {p.returncode}")
        apart("drop", top, log)
        w = rng.randrange(WRITERS)
        writers[w].kill()
        writers[w].wait()
        apart("check", top, log)
        kills, checks = kills + 1, checks + 1
        writers[w] = start(w)
    for p in writers:
        p.send_signal(signal.SIGKILL)
        p.wait()
    rows = apart("check", top, log)
    print(f"{journal}/{sync}: {rows} rows, {kills} kills, {checks + 1} checks")


if sys.argv[1] == "write":
    write(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
elif sys.argv[1] == "check":
    total = check(sys.argv[2], sys.argv[3])
    if total == 0:
        sys.exit("nothing was written")
    print(total)
elif sys.argv[1] == "drop":
    drop(sys.argv[2])
else:
    load(*sys.argv[2:6], float(sys.argv[6]), int(sys.argv[7]))
