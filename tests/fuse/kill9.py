# SPDX-License-Identifier: BSD-2-Clause
# usage: kill9.py ROUNDS SEED (see kill9.sh). Every round draws a load and a moment:
#
#   load    what runs on the mount when the daemon dies, and what must hold afterwards
#   moment  what the daemon (or gild) is doing when it is killed: just serving, mounting after a
#           kill, flushing, unmounting, recovering without its maps, formatting
#
# "Acknowledged" is more than fsynced here: a killed daemon loses nothing that write(2) returned for.
import hashlib, mmap, os, random, shutil, signal, sqlite3, struct, subprocess, sys, time

T, SRC = os.environ["T"], os.environ["SRC"]
GILD, GILDFS = os.environ["GILD"], os.environ["GILDFS"]
B, M, CARD = f"{T}/b", f"{T}/m", f"{T}/c"
QUIET = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Bad(Exception):
    pass


def check(ok, what):
    if not ok:
        raise Bad(what)


def run(*cmd, **kw):
    return subprocess.run(cmd, **{**QUIET, **kw}).returncode


def drop_pages():
    try:
        open("/proc/sys/vm/drop_caches", "w").write("3")
    except OSError:
        pass


# ---- loads: start(round) -> processes; check() after the remount, on the mount ----

class Counter:
    """How many of something were acknowledged; in a file, so that a forked writer can count."""

    def __init__(self, name):
        self.path = f"{T}/{name}"
        with open(self.path, "wb") as f:
            f.write(bytes(8))
        self.f = open(self.path, "r+b")
        self.m = mmap.mmap(self.f.fileno(), 8)

    def get(self):
        return struct.unpack("<q", self.m[:8])[0]

    def set(self, n):
        self.m[:8] = struct.pack("<q", n)


def fork(fn, *args):
    """In a process group of its own: see end()."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            fn(*args)
        except (OSError, sqlite3.Error):
            pass  # the mount went away
        finally:
            os._exit(0)
    return pid


def spawn(*cmd):
    def run_it():
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.execvp(cmd[0], cmd)
    return fork(run_it)


class Own:
    """Random calls over 40 files; and journals: record n is as long and looks as n says."""

    def __init__(self):
        self.acked = [Counter(f"acked{i}") for i in range(2)]
        for i in range(40):
            with open(f"{B}/f{i}", "wb") as f:
                f.write(random.randbytes(i * 7919))

    @staticmethod
    def record(n):
        return random.Random(n).randbytes(1 + n * 977 % 9000)

    def journal(self, i):
        fd = os.open(f"{M}/journal{i}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        n = self.acked[i].get()
        while True:
            if os.write(fd, self.record(n)) != len(self.record(n)):
                return
            if n % 7 == 0:
                os.fsync(fd)
            n += 1
            self.acked[i].set(n)

    @staticmethod
    def calls(r):
        while True:
            try:
                Own.call(r, f"{M}/f{r.randrange(40)}")
            except FileNotFoundError:
                pass

    @staticmethod
    def call(r, p):
        k = r.randrange(12)
        if k < 5:
            fd = os.open(p, os.O_RDWR | os.O_CREAT)
            os.pwrite(fd, r.randbytes(r.randrange(1, 150000)), r.randrange(400000))
            if r.random() < .2:
                os.fsync(fd)
            os.close(fd)
        elif k < 6:
            os.truncate(p, r.randrange(400000))
        elif k < 7:
            with open(p, "ab") as f:
                f.write(r.randbytes(r.randrange(5000)))
        elif k < 8:
            os.rename(p, f"{M}/f{r.randrange(40)}")
        elif k < 9:
            os.unlink(p)
        elif k < 10:
            try:
                os.link(p, f"{M}/f{r.randrange(40)}")
            except FileExistsError:
                pass
        else:
            with open(p, "rb") as f:
                f.read()

    def start(self, r):
        return ([fork(self.journal, i) for i in range(2)] +
                [fork(self.calls, random.Random(r.random())) for _ in range(2)])

    def check(self):
        for i, acked in enumerate(self.acked):
            n, at, have = 0, 0, b""
            if os.path.exists(f"{M}/journal{i}"):
                with open(f"{M}/journal{i}", "rb") as f:
                    have = f.read()
            while n < acked.get():
                rec = self.record(n)
                check(have[at:at + len(rec)] == rec, f"journal{i}: record {n} is lost or wrong")
                at += len(rec)
                n += 1
            # One more may have been written and not acknowledged, in part: begin anew after it.
            os.truncate(f"{M}/journal{i}", at) if have else None
            if at > 4 << 20:
                os.unlink(f"{M}/journal{i}")
                acked.set(0)


class Fio:
    """All blocks have a checksum of their own before, and must have one after."""
    need = "fio"

    def fio(self, rw, *more):
        return ["fio", "--name=v", f"--directory={M}", f"--rw={rw}", "--bs=4k", "--size=4M",
                "--verify=md5", "--ioengine=psync", "--fallocate=none", "--thread",
                "--verify_state_save=0", *more]

    def start(self, r):
        if not os.path.exists(f"{B}/v.0.0"):
            run(*self.fio("write", "--do_verify=0"))
        return [spawn(*self.fio("randwrite", "--do_verify=0", "--time_based=1", "--runtime=60",
                                f"--randseed={r.randrange(1 << 30)}"))]

    def check(self):
        if not os.path.exists(f"{M}/v.0.0") or os.path.getsize(f"{M}/v.0.0") != 4 << 20:
            return
        with open(f"{M}/v.0.0", "rb") as f:
            for at in range(0, 4 << 20, 4096):
                b = f.read(4096)
                check(b[:2] == b"\xca\xac" and struct.unpack("<q", b[16:24])[0] == at and
                      hashlib.md5(b[56:]).digest() == b[40:56], f"fio: the block at {at} is wrong")


class Rsync:
    need = "rsync"

    def start(self, r):
        return [spawn(
            "sh", "-c", f"while :; do rsync -a '{SRC}/src/cache' '{M}/rs/' && rsync -a --inplace "
             f"--ignore-times '{SRC}/src/ftl' '{M}/rs/' && rm -r '{M}/rs/cache' || exit; done")]

    def check(self):
        check(not run("rsync", "-a", "--delete", f"{SRC}/src/cache", f"{SRC}/src/ftl", f"{M}/rs/"),
              "rsync fails")
        out = subprocess.run(["rsync", "-acni", "--delete", f"{SRC}/src/cache", f"{SRC}/src/ftl",
                              f"{M}/rs/"], capture_output=True).stdout
        check(not out, f"rsync sees differences: {out[:200]}")


class Git:
    need = "git"
    git = ["git", "-C", f"{M}/repo", "-c", "user.name=t", "-c", "user.email=t@t",
           "-c", "gc.auto=0"]

    def start(self, r):
        if not os.path.exists(f"{B}/repo"):
            os.mkdir(f"{M}/repo")
            run(*self.git, "init", "-q")
        g = "git -c user.name=t -c user.email=t@t"
        return [spawn(
            "sh", "-c", f"cd '{M}/repo' && i=0; while :; do i=$((i+1)); date +%N$i >f$((i % 9)) && "
             f"cp '{SRC}/src/cache/cache.c' c$((i % 5)).c && echo $i >>c$((i % 5)).c && "
             f"{g} add . && {g} commit -qm $i || exit; [ $((i % 10)) != 0 ] || {g} repack -adq; done")]

    def check(self):
        for d, _, names in os.walk(f"{M}/repo/.git"):
            for n in names:
                if n.endswith(".lock"):
                    os.unlink(f"{d}/{n}")
        p = subprocess.run([*self.git, "fsck", "--full"], capture_output=True)
        check(p.returncode == 0, f"git fsck: {p.stderr[:300]}")
        run(*self.git, "reset", "-q")


class Sqlite:
    def __init__(self):
        self.acked = [Counter("sqlite0"), Counter("sqlite1")]

    def insert(self, i):
        db = sqlite3.connect(f"{M}/t{i}.db", timeout=20)
        db.execute(f"pragma journal_mode={('wal', 'delete')[i]}")
        db.execute("create table if not exists t(n integer primary key, v blob)")
        n = db.execute("select coalesce(max(n), -1) + 1 from t").fetchone()[0]
        while True:
            db.execute("insert into t values(?, ?)", (n, Own.record(n)))
            db.execute("delete from t where n < ?", (n - 300,))
            db.commit()
            self.acked[i].set(n)
            n += 1

    def start(self, r):
        return [fork(self.insert, i) for i in range(2)]

    def check(self):
        for i in range(2):
            if not os.path.exists(f"{B}/t{i}.db"):
                continue
            db = sqlite3.connect(f"{M}/t{i}.db", timeout=20)
            check(db.execute("pragma integrity_check").fetchone()[0] == "ok", f"t{i}.db is damaged")
            try:
                rows = db.execute("select n, v from t order by n").fetchall()
            except sqlite3.OperationalError:  # not created yet
                rows = []
            check((rows[-1][0] if rows else 0) >= self.acked[i].get(), f"t{i}.db lost a transaction")
            check(all(v == Own.record(n) for n, v in rows), f"t{i}.db has wrong rows")
            db.close()


# ---- the daemon ----

def mount(*more):
    """A process that was killed lets go of the card when its last thread is out of the kernel."""
    for _ in range(200):
        with open(f"{T}/mount.err", "w") as err:
            p = subprocess.run([GILDFS, "-o", ",".join([f"card={CARD}", *more]), B, M],
                               stdout=subprocess.DEVNULL, stderr=err, timeout=120)
        said = open(f"{T}/mount.err").read()
        if "in use" not in said:
            break
        print(f"waits: {said}", end="", flush=True)
        time.sleep(.1)
    check(p.returncode == 0, f"cannot mount: {said}")


def daemon_pid():
    out = subprocess.run([GILD, "status", "--json", M], capture_output=True, text=True).stdout
    return int(out.split('"pid":')[1].split(",")[0])


def gone(pid):
    """Waits until the daemon has gone, all threads of it (one may be in the middle of a sync), and
    with it its locks. It is no child of ours: a zombie is gone, too."""
    def there():
        try:
            state = open(f"/proc/{pid}/stat").read().split(") ")[1][0]
            return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
        except OSError:
            return False
    while there():
        time.sleep(.005)


def end(pids):
    """Writers end by themselves when the mount is gone; a shell loop may not."""
    for p in pids:
        try:
            os.killpg(p, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for p in pids:
        os.waitpid(p, 0)


def unhook():
    run("umount", "-l", M)


def kill_while(r, most, *cmd):
    """Starts the command and kills it after a random time; true: it was done before."""
    p = subprocess.Popen(cmd, **QUIET)
    time.sleep(r.uniform(0, most))
    p.kill()
    return p.wait() == 0


def serving(r, pid):
    os.kill(pid, signal.SIGKILL)


def flushing(r, pid):
    p = subprocess.Popen([GILD, "flush", M], **QUIET)
    time.sleep(r.uniform(0, .05))
    os.kill(pid, signal.SIGKILL)
    p.wait()


def unmounting(r, pid):
    run("umount", "-l", M)  # the last writer's end unmounts
    time.sleep(r.uniform(0, .05))
    os.kill(pid, signal.SIGKILL)


def mounting(r, pid):
    os.kill(pid, signal.SIGKILL)
    gone(pid)
    unhook()
    for _ in range(r.randrange(1, 4)):
        kill_while(r, .15, GILDFS, "-f", "-o", f"card={CARD}", B, M)
        unhook()


def recovering(r, pid):
    os.kill(pid, signal.SIGKILL)
    gone(pid)
    unhook()
    for d, _, names in os.walk(CARD):
        for n in names:
            if n.endswith(".mdb"):
                os.unlink(f"{d}/{n}")
    for _ in range(r.randrange(1, 4)):
        kill_while(r, .3, GILD, "recover", CARD)
    check(not run(GILD, "recover", CARD), "gild recover fails")


def formatting(r, pid):
    """A format that was killed leaves nothing that mounts as if it were whole."""
    os.kill(pid, signal.SIGKILL)
    new = f"{T}/c2"
    if not kill_while(r, .1, GILD, "format", new, "--size", "64M") and os.path.exists(new):
        if not run(GILDFS, "-o", f"card={new}", B, f"{T}/m2", timeout=120):
            check(not run("diff", "-rq", "--no-dereference", B, f"{T}/m2"), "half a format is mounted")
            run("umount", f"{T}/m2")
    shutil.rmtree(new, ignore_errors=True)
    check(not run(GILD, "format", new, "--size", "64M"), "a format after a killed one fails")
    shutil.rmtree(new)


# Reads everything once with cold pages and compares; what differs is compared again, by content.
def compare(when):
    drop_pages()
    p = subprocess.run(["diff", "-r", "--no-dereference", B, M], capture_output=True, text=True)
    check(p.returncode == 0, f"{when}: mount and backing differ: {p.stdout[:300]}{p.stderr[:300]}")


def one_round(r, loads, number):
    names = r.sample(sorted(loads), r.choice([1, 1, 2]))
    moment = r.choice([serving] * 5 + [flushing, unmounting, mounting, mounting, recovering,
                                       formatting])
    mode = r.choice(["mode=write-through"] * 3 + ["mode=write-around"])
    print(f"round {number}: {'+'.join(names)}, killed while {moment.__name__}, {mode}", flush=True)
    mount(f"publish-after={r.randrange(3)}s", mode, r.choice(["admit=always", "admit=freq"]),
          r.choice(["coherence=ttl", "coherence=strict"]))
    pid = daemon_pid()
    pids = [p for n in names for p in loads[n].start(r)]
    time.sleep(r.uniform(.1, 1.2))  # the moment of the kill is the test's randomness
    moment(r, pid)
    gone(pid)
    unhook()
    end(pids)
    unhook()
    mount()
    compare("after the kill")
    for n in names:
        loads[n].check()
    compare("afterwards")
    run("umount", M)


def main():
    rounds, seed = int(sys.argv[1]), int(sys.argv[2])
    print(f"seed {seed}", flush=True)
    for d in (B, M, f"{T}/m2"):
        os.mkdir(d)
    check(not run(GILD, "format", CARD, "--size", "64M"), "cannot format")
    loads = {c.__name__: c() for c in (Own, Fio, Rsync, Git, Sqlite)
             if not hasattr(c, "need") or shutil.which(c.need)}
    done = bad = 0
    for number in range(rounds):
        r = random.Random(f"{seed} {number}")
        done += 1
        try:
            one_round(r, loads, number)
        except Bad as e:
            print(f"FAIL round {number} (seed {seed}): {e}", flush=True)
            bad += 1
            break
    print(f"kill -9 rounds {done}, failed {bad}, seed {seed}")
    return bad


sys.exit(1 if main() else 0)
