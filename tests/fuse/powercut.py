# SPDX-License-Identifier: BSD-2-Clause
# usage: powercut.py CUTS SEED (see powercut.sh).
#
# Records what a workload does to two disks, the backing's and the card's, each with a real
# filesystem (recdisk.c). Then for CUTS moments of it: each disk has all writes up to its last flush
# before the moment and any subset of the later ones (none, all, a prefix, at random; torn at 4 KiB).
# From these images: the filesystems replay their journals, sometimes gild recover runs without its
# maps, the mount must be the backing, and what was fsynced before the moment must be there.
import os, random, signal, sqlite3, struct, subprocess, sys, time

T, SRC, BUILD = os.environ["T"], os.environ["SRC"], os.environ["BUILD"]
GILD, GILDFS = os.environ["GILD"], os.environ["GILDFS"]
FS = os.environ.get("FS", "ext4")
SIZES = {"ext4": ("48M", "160M"), "xfs": ("320M", "400M")}[FS]
SECONDS = float(os.environ.get("SECONDS_RECORDED", "6"))
REC, LOG = f"{T}/rec", f"{T}/log"
B, C, M = f"{T}/b", f"{T}/c", f"{T}/m"
QUIET = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
FILES = 60
ENTRY = struct.Struct("<cBHIQ")


def run(*cmd):
    return subprocess.run(cmd, **QUIET).returncode


def must(*cmd):
    p = subprocess.run(cmd, capture_output=True, text=True)
    if p.returncode:
        raise SystemExit(f"{' '.join(cmd)}: {p.stderr}")
    return p.stdout


def disks_mount(image):
    # nouuid: a filesystem can live on for a moment in some other mount namespace.
    for i, at in enumerate((B, C)):
        must("mount", "-o", {"ext4": "loop", "xfs": "loop,nouuid"}[FS], image(i), at)


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


def disks_umount(daemon=None):
    if daemon:
        must("umount", M)
        gone(daemon)
    for at in (C, B):
        must("sync", "-f", at)
        must("umount", at)


# ---- the workload ----

def record_of(n):
    return random.Random(n).randbytes(1 + n * 977 % 9000)


def mark(text):
    with open(f"{REC}/mark", "wb", buffering=0) as f:
        f.write(text.encode())


def writer(fn, *args):
    pid = os.fork()
    if pid == 0:
        try:
            fn(*args)
        except (OSError, sqlite3.Error):
            pass
        finally:
            os._exit(0)
    return pid


def journal(start):
    fd = os.open(f"{M}/journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.fsync(fd)
    top = os.open(M, os.O_RDONLY)
    os.fsync(top)
    n = start
    while True:
        os.write(fd, record_of(n))
        n += 1
        if n % 3 == 0:
            os.fsync(fd)
            mark(f"journal {n}")


def transactions(start):
    db = sqlite3.connect(f"{M}/t.db", timeout=20)
    db.execute("pragma synchronous=extra")
    db.execute("create table if not exists t(n integer primary key, v blob)")
    n = start
    while True:
        db.execute("insert or replace into t values(?, ?)", (n, record_of(n)))
        db.commit()
        mark(f"sqlite {n}")
        n += 1
        time.sleep(.01)


def calls(seed):
    r = random.Random(seed)
    while True:
        p = f"{M}/f{r.randrange(FILES)}"
        k = r.randrange(14)
        try:
            if k < 5:
                fd = os.open(p, os.O_RDWR | os.O_CREAT)
                os.pwrite(fd, r.randbytes(r.randrange(1, 60000)), r.randrange(150000))
                if r.random() < .6:
                    os.fsync(fd)
                os.close(fd)
            elif k < 6:
                os.truncate(p, r.randrange(150000))
            elif k < 7:
                os.rename(p, f"{M}/f{r.randrange(FILES)}")
            elif k < 8:
                os.unlink(p)
            else:
                with open(p, "rb") as f:
                    f.read()
        except FileNotFoundError:
            pass
        time.sleep(.02)  # or no file is ever quiet for long enough to be published


def daemon_pid():
    return int(must(GILD, "status", "--json", M).split('"pid":')[1].split(",")[0])


def behind(seed):
    """Replaces files behind the mount and reads them through it. Not in place: see gildfs(1)."""
    r = random.Random(seed)
    while True:
        name = f"g{r.randrange(20)}"
        with open(f"{B}/tree/new", "wb") as f:
            f.write(r.randbytes(r.randrange(1, 20000)))
            if r.random() < .5:
                os.fsync(f.fileno())
        os.rename(f"{B}/tree/new", f"{B}/tree/{name}")
        for _ in range(10):
            try:
                with open(f"{M}/g{r.randrange(20)}", "rb") as f:
                    f.read()
            except FileNotFoundError:
                pass
            time.sleep(.02)


def mount_gild():
    must(GILDFS, "-o", f"card={C}/card,admit=always,publish-after=100ms", f"{B}/tree", M)
    return daemon_pid()


def phase(r, n, seconds):
    """Serves for a while; then is unmounted or killed."""
    daemon = mount_gild()
    pids = [writer(journal, n * 100000), writer(transactions, n * 100000),
            writer(calls, r.random()), writer(calls, r.random()), writer(behind, r.random())]
    until = time.time() + seconds
    while time.time() < until:
        time.sleep(.2)
        if r.random() < .2:
            run(GILD, "flush", M)
        if r.random() < .3:
            open("/proc/sys/vm/drop_caches", "w").write("3")
    if r.random() < .5:
        os.kill(daemon, signal.SIGKILL)
    for p in pids:
        os.kill(p, signal.SIGKILL)
        os.waitpid(p, 0)
    run("umount", "-l", M)
    gone(daemon)
    if n % 2 == 0:
        # the next journal begins anew, so that what is expected is simple
        mark("new journal")
        os.unlink(f"{B}/tree/journal")


def record(r):
    for i, size in enumerate(SIZES):
        must("truncate", "-s", size, f"{T}/i{i}")
        must(f"mkfs.{FS}", "-q", *(["-F"] if FS == "ext4" else []), f"{T}/i{i}")
    disks_mount(lambda i: f"{T}/i{i}")
    os.mkdir(f"{B}/tree")
    for i in range(FILES):
        with open(f"{B}/tree/f{i}", "wb") as f:
            f.write(r.randbytes(i * 2111))
    must(GILD, "format", f"{C}/card", "--size", "64M")
    disks_umount()
    for i in range(2):
        must("cp", "--sparse=always", f"{T}/i{i}", f"{T}/base{i}")
    rec = subprocess.Popen([f"{BUILD}/tests/fuse/recdisk", REC, LOG, f"{T}/i0", f"{T}/i1"])
    while run("mountpoint", "-q", REC):
        time.sleep(.01)
    disks_mount(lambda i: f"{REC}/disk{i}")
    for n in range(3):
        phase(r, n, SECONDS / 3)
    disks_umount()
    must("umount", REC)
    if rec.wait():
        raise SystemExit("the recorder failed")


# ---- the cuts ----

def read_log():
    """Entries without data: (type, disk, position of data, length, offset)."""
    entries = []
    with open(LOG, "rb") as f:
        while True:
            head = f.read(ENTRY.size)
            if len(head) < ENTRY.size:
                return entries
            kind, disk, _, length, off = ENTRY.unpack(head)
            entries.append((kind, disk, f.tell(), length, off))
            f.seek(length, 1)


def cut_image(at):
    """Never the same file twice: mount -o loop takes a device that still has it, and its pages."""
    return lambda i: f"{T}/cut{at}.{i}"


class Images:
    """The disks as far as they are durable at entry `at`, and what is not."""

    def __init__(self, entries):
        self.entries, self.at = entries, 0
        self.log = os.open(LOG, os.O_RDONLY)
        self.base = [os.open(f"{T}/base{i}", os.O_RDWR) for i in range(2)]
        self.volatile = [[], []]

    def write(self, fd, e, lo=0, hi=None):
        _, _, pos, length, off = e
        hi = length if hi is None else min(hi, length)
        os.pwrite(fd, os.pread(self.log, hi - lo, pos + lo), off + lo)

    def advance(self, to):
        for e in self.entries[self.at:to]:
            if e[0] == b"w":
                self.volatile[e[1]].append(e)
            elif e[0] == b"f":
                for w in self.volatile[e[1]]:
                    self.write(self.base[e[1]], w)
                self.volatile[e[1]] = []
        self.at = to

    def cut(self, r, at):
        for i in range(2):
            must("cp", "--sparse=auto", f"{T}/base{i}", cut_image(at)(i))
            fd = os.open(cut_image(at)(i), os.O_RDWR)
            v, how = self.volatile[i], r.randrange(5)
            if how == 0:
                v = []
            elif how == 1:
                v = v[:r.randrange(len(v) + 1)]
            for e in v:
                if how <= 2:
                    self.write(fd, e)
                    continue
                for lo in range(0, e[3], 4096):
                    if r.random() < (.5 if how == 3 else .9):
                        self.write(fd, e, lo, lo + 4096)
            os.close(fd)


def expected(entries, at):
    """What the marks before entry `at` say is there."""
    want = {}
    with open(LOG, "rb") as f:
        for kind, _, pos, length, _ in entries[:at]:
            if kind == b"m":
                f.seek(pos)
                what, n = f.read(length).decode().rsplit(" ", 1)
                if what == "new":
                    want.pop("journal", None)
                else:
                    want[what] = int(n)
    return want


def lost(want):
    if "journal" in want:
        first = want["journal"] // 100000 * 100000
        data = b"".join(record_of(n) for n in range(first, want["journal"]))
        have = open(f"{M}/journal", "rb").read() if os.path.exists(f"{M}/journal") else b""
        # a killed phase left its own records before
        if data not in have:
            return f"journal: records up to {want['journal']} are not there"
    if os.path.exists(f"{M}/t.db") or "sqlite" in want:
        db = sqlite3.connect(f"{M}/t.db", timeout=20)
        if db.execute("pragma integrity_check").fetchone()[0] != "ok":
            return "sqlite: damaged"
        if "sqlite" in want:
            row = db.execute("select v from t where n = ?", (want["sqlite"],)).fetchone()
            if not row or row[0] != record_of(want["sqlite"]):
                return f"sqlite: transaction {want['sqlite']} is not there"
        db.close()
    return None


def try_cut(r, entries, at):
    disks_mount(cut_image(at))
    if r.random() < .15:
        must("find", f"{C}/card", "-name", "*.mdb", "-delete")
        must(GILD, "recover", f"{C}/card")
    daemon = mount_gild()
    p = subprocess.run(["diff", "-r", f"{B}/tree", M], capture_output=True, text=True)
    stale = p.stdout + p.stderr
    hits = int(must(GILD, "status", "--json", M).split('"hits":')[1].split(",")[0])
    missing = lost(expected(entries, at))
    disks_umount(daemon)
    return stale, missing, hits


def main():
    cuts, seed = int(sys.argv[1]), int(sys.argv[2])
    print(f"seed {seed}, {FS}", flush=True)
    r = random.Random(seed)
    for d in (REC, B, C, M):
        os.mkdir(d)
    record(r)
    entries = read_log()
    writes = [i for i, e in enumerate(entries) if e[0] != b"m"]
    places = sorted(r.sample(writes, min(cuts, len(writes))))
    print(f"{len(entries)} entries, {os.path.getsize(LOG) >> 20} MiB", flush=True)
    images, bad, all_hits = Images(entries), [0, 0], 0
    for at in places:
        images.advance(at)
        images.cut(r, at)
        stale, missing, hits = try_cut(r, entries, at)
        all_hits += hits
        for i, what in enumerate((stale, missing)):
            if what:
                bad[i] += 1
                print(f"cut after entry {at}: {('stale', 'lost')[i]}: {what[:400]}", flush=True)
        for i in range(2):
            if not any(bad) or not os.environ.get("KEEP"):
                os.unlink(cut_image(at)(i))
    print(f"{all_hits} hits")
    print(f"cut points {len(places)}, stale {bad[0]}, lost {bad[1]}, seed {seed}")
    return 1 if any(bad) else 0


try:
    rc = main()
finally:
    run("umount", "-l", M), run("umount", "-l", C), run("umount", "-l", B), run("umount", "-l", REC)
sys.exit(rc)
