# SPDX-License-Identifier: BSD-2-Clause
"""Files written and replaced behind the mount all the time, and many readers of them on the mount.

Every block of 4 KiB begins with the number of the write that made it; when each write was done is
noted. A reader never sees, in any block, a number older than the last write that was done before
the mode's promise began, one smaller than it has seen there before, or one that was not begun. A file
that is only ever replaced is of one number as a whole. Meanwhile others list and copy the tree:
nobody may get stuck.
"""
import ctypes, errno, json, mmap, multiprocessing as mp, os, random, struct, subprocess, sys, time

TOP, SECONDS, SEED = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
B, M = f"{TOP}/b/gen", f"{TOP}/m/gen"
GILD, GILDFS = os.environ["GILD"], os.environ["GILDFS"]
BLOCK, BLOCKS, MAX = 4096, 48, 200000
FILES = ("w0", "w1", "r0", "r1")   # written in place, replaced
READERS, SOON = 6, 30
LONG_WRITE = .15  # one that takes longer may leave older bytes behind it: a stated limit


class History:
    def __init__(self):
        self.begun = mp.RawValue(ctypes.c_int64, 0)
        self.done = mp.RawValue(ctypes.c_int64, 0)
        self.when = mp.RawArray(ctypes.c_double, MAX)

    def promised(self, moment):
        g = self.done.value
        while g > 0 and self.when[g] > moment:
            g -= 1
        return g


def write(name, h, r, g):
    data = b"".join(struct.pack("<Q", g) + bytes(BLOCK - 8) for _ in range(BLOCKS))
    path = f"{B}/{name}"
    h.begun.value = g
    start = time.monotonic()
    if name[0] == "w" and g > 1:
        st = os.stat(path)
        fd = os.open(path, os.O_WRONLY)
        os.pwrite(fd, data, 0)
        if r.random() < .5:
            os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
        os.close(fd)
    else:
        with open(path + ".new", "wb") as f:
            f.write(data)
        os.utime(path + ".new", ns=(0, 0))
        os.rename(path + ".new", path)
    end = time.monotonic()
    h.when[g] = end if end - start < LONG_WRITE or name[0] == "r" else float("inf")
    h.done.value = g


def writer(name, h, until, seed):
    r, g = random.Random(seed), h.done.value
    while time.monotonic() < until and g < MAX - 2:
        g += 1
        write(name, h, r, g)
        time.sleep(r.choice((0, 0, .003, .02, .1, .5)))


def look(path, way, fds, name):
    """The bytes, and how."""
    if way == "fd" and name[0] == "w":
        if name not in fds:
            fds[name] = os.open(path, os.O_RDONLY)
        return os.pread(fds[name], BLOCK * BLOCKS, 0)
    fd = os.open(path, os.O_RDONLY)
    try:
        if way == "drop":
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if way == "mmap" and name[0] == "w":  # of one that was replaced: SIGBUS
            with mmap.mmap(fd, BLOCK * BLOCKS, prot=mmap.PROT_READ) as m:
                return bytes(m)
        return os.pread(fd, BLOCK * BLOCKS, 0)
    finally:
        os.close(fd)


def reader(histories, promise, until, seed):
    r, fds, reads = random.Random(seed), {}, 0
    seen = {n: [0] * BLOCKS for n in FILES}
    while time.monotonic() < until:
        name, way = r.choice(FILES), r.choice(("fd", "read", "drop", "drop", "mmap"))
        h, start = histories[name], time.monotonic()
        want = h.promised(start - promise)
        try:
            data = look(f"{M}/{name}", way, fds, name)
        except OSError as e:
            if e.errno == errno.ESTALE and name[0] == "r":
                continue   # replaced between open and read
            stale(f"{name} by {way}: {e}")
        last = h.begun.value
        if len(data) != BLOCK * BLOCKS:
            stale(f"{name} by {way}: {len(data)} bytes")
        # Of two lookups at once the earlier answer may come last, and be believed for the ttl.
        if name[0] == "r" and promise:
            seen[name] = [0] * BLOCKS
        got = [struct.unpack_from("<Q", data, i * BLOCK)[0] for i in range(BLOCKS)]
        for i, g in enumerate(got):
            if g < want or g < seen[name][i] or g > last:
                stale(f"{name} by {way}, block {i}: {g}; written {want}, seen {seen[name][i]}, "
                      f"begun {last}: {got}")
        if name[0] == "r" and len(set(got)) > 1:
            stale(f"{name} by {way}: mixed: {got}")
        seen[name] = got
        reads += 1
        time.sleep(r.choice((0, 0, .002)))
    if reads < 5:
        stale(f"{reads} reads only")


def stale(text):
    print("STALE:", text, flush=True)
    os._exit(1)


def walker(until):
    while time.monotonic() < until:
        for e in os.scandir(M):
            try:
                e.stat()
                with open(f"{M}/{e.name}", "rb") as f, open(f"{TOP}/copy", "wb") as g:
                    g.write(f.read())
            except OSError as error:
                # A name for a moment only; replaced between open and read.
                if error.errno not in (errno.ENOENT, errno.ESTALE) or e.name in ("w0", "w1"):
                    stale(f"copying {e.name}: {error}")


def mount(options):
    subprocess.run([GILDFS, "-o", f"card={TOP}/c,admit=always,{options}", f"{TOP}/b", f"{TOP}/m"],
                   check=True)
    return json.loads(subprocess.run([GILD, "status", "--json", f"{TOP}/m"], check=True,
                                     capture_output=True).stdout)["pid"]


def umount(pid):
    subprocess.run(["umount", f"{TOP}/m"], check=True)
    until = time.monotonic() + SOON
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > until:
            stale("the daemon does not end")
        time.sleep(.01)


def storm(mode, options, promise):
    histories = {n: History() for n in FILES}
    os.makedirs(B)
    for n, h in histories.items():
        write(n, h, random.Random(SEED), 1)
    pid = mount(options)
    until = time.monotonic() + SECONDS
    procs = [mp.Process(target=writer, args=(n, h, until, SEED + i))
             for i, (n, h) in enumerate(histories.items())]
    procs += [mp.Process(target=reader, args=(histories, promise, until, SEED + 100 + i))
              for i in range(READERS)]
    procs += [mp.Process(target=walker, args=(until,)) for _ in range(2)]
    for p in procs:
        p.start()
    bad = 0
    for p in procs:
        p.join(max(0, until - time.monotonic()) + SOON)
        if p.exitcode != 0:
            print(f"{mode}: stuck or wrong ({p.exitcode})", flush=True)
            bad = 1
            p.kill()
    umount(pid)
    writes = {n: h.done.value for n, h in histories.items()}
    print(f"{mode}: writes {writes}", flush=True)
    subprocess.run(["rm", "-rf", B], check=True)
    return bad


def direct(path, gate, want):
    """Past the kernel's pages: every reader asks the daemon."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, 65536) as room:
        gate.wait()
        n = os.preadv(fd, [room], 0)
        if room[:n] != want:
            stale("one of fifty readers got something else")


def fifty():
    """Fifty readers of one missing file are one read of the backing, or few."""
    data = random.Random(SEED).randbytes(60000)
    with open(f"{TOP}/b/one", "wb") as f:
        f.write(data)
    time.sleep(.3)   # from then on it is cached
    pid = mount("ttl=1h")
    gate = mp.Barrier(50)
    procs = [mp.Process(target=direct, args=(f"{TOP}/m/one", gate, data)) for _ in range(50)]
    for p in procs:
        p.start()
    for p in procs:
        p.join(SOON)
    bad = any(p.exitcode != 0 for p in procs)
    reads = json.loads(subprocess.run([GILD, "stats", "--json", f"{TOP}/m"], check=True,
                                      capture_output=True).stdout)["backing"]["reads"]
    umount(pid)
    print(f"fifty readers, {reads} reads of the backing", flush=True)
    # Who looked on flash just before the first one's bytes got there reads once more.
    return bad or reads > 5


def main():
    bad = 0
    for mode in os.environ.get("MODES", "ttl strict").split():
        bad += storm(mode, f"coherence={mode},ttl=60ms", .3 if mode == "ttl" else 0)
    bad += fifty()
    sys.exit(bad != 0)


main()
