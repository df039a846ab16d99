# SPDX-License-Identifier: BSD-2-Clause
"""The same random operations through a mount and on a shadow directory, compared at every step.

Each worker has a tree of its own and does single operations on both sides: the error, the result
and the bytes must be the same, and the attributes those of the backing. Two workers share a tree
under a lock. One changes the backing behind the mount, waits for the ttl, and expects the mount to
show exactly that, while a reader keeps the mount's caches full of what was there before. Rounds end
with an unmount or with kill -9 of the daemon; then backing, shadow and the next mount must agree
(after kill -9: but for what the operation that was cut off touched).

Data is moved in every way a FUSE mount offers: plain, at the end, O_DIRECT, through mappings that
live on while the file is written, cut and punched by other means, sendfile, fallocate, and
copy_file_range within a file and between two. (Collapsing and inserting ranges, which FUSE refuses,
happens behind the mount.)
"""
import ctypes, errno, fcntl, json, mmap, multiprocessing, os, random, shutil, signal, stat, subprocess
import sys, time, traceback

GONE = (errno.ENOTCONN, errno.ECONNABORTED)
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
NAMES = [f"f{i}" for i in range(7)] + [f"d{i}" for i in range(3)]


class MountGone(Exception):
    pass


class Wrong(Exception):
    pass


def fallocate(fd, mode, off, length):
    if libc.fallocate(fd, mode, off, length):
        raise OSError(ctypes.get_errno(), "fallocate")


def write_all(fd, data, off=None):
    """A daemon killed between two requests makes a write short: the next call says why."""
    done = 0
    while done < len(data):
        done += os.write(fd, data[done:]) if off is None else \
            os.pwrite(fd, data[done:], off + done)
    return done


def stuff(r, n):
    k = r.random()
    if k < .5:
        return r.randbytes(n)
    if k < .6:
        return bytes(n)
    return (r.randbytes(61) * (n // 61 + 1))[:n]


def first_difference(a, b):
    n = min(len(a), len(b))
    for i in range(0, n, 4096):
        if a[i:i + 4096] != b[i:i + 4096]:
            return next(j for j in range(i, n) if a[j] != b[j])
    return n


class Side:
    """Paths and open descriptors on the mount ("m", its backing beside it) or in the shadow."""
    def __init__(self, top):
        self.top, self.fds, self.maps = top, {}, {}

    def path(self, rel):
        return os.path.join(self.top, rel)


class Worker:
    def __init__(self, cfg, name, seed, shared=False):
        self.cfg, self.name, self.shared = cfg, name, shared
        self.r = random.Random(seed)
        self.m = Side(os.path.join(cfg["m"], name))
        self.s = Side(os.path.join(cfg["s"], name))
        self.b = os.path.join(cfg["b"], name)
        self.log, self.slots, self.ops = [], {}, 0
        self.touched = []
        self.old_mtime = 0

    # ---- one operation on both sides ----

    def one(self, side, fn):
        try:
            return 0, fn(side)
        except OSError as e:
            if side is self.m and e.errno in GONE:
                raise MountGone()
            return e.errno, None

    def both(self, what, paths, fn):
        self.log.append(what)
        del self.log[:-60]
        try:
            got = self.one(self.m, fn)
        except MountGone:
            self.touched = self.names_of(paths)
            raise
        want = self.one(self.s, fn)
        self.ops += 1
        if got != want:
            a, b = got[1], want[1]
            text = f"error {got[0]}, natively {want[0]}"
            if got[0] == want[0] == 0:
                text = f"{str(a)[:80]}, natively {str(b)[:80]}"
                if isinstance(a, bytes):
                    text = (f"{len(a)} bytes, natively {len(b)}; "
                            f"first difference at {first_difference(a, b)}")
            raise Wrong(f"{what}: {text}")
        return want

    def names_of(self, paths):
        """All names, in the shadow, of what these paths and descriptors (numbers) lead to."""
        inodes, names = set(), [p for p in paths if isinstance(p, str)]
        for p in paths:
            try:
                inodes.add((os.stat(self.s.path(p)) if isinstance(p, str) else os.fstat(p)).st_ino)
            except OSError:
                pass
        for d, _, files in os.walk(self.s.top):
            for n in files:
                p = os.path.join(d, n)
                if os.lstat(p).st_ino in inodes:
                    names.append(os.path.relpath(p, self.s.top))
        return names

    # ---- random arguments ----

    def rel(self):
        p = self.r.choice(NAMES)
        while p.startswith("d") and p.count("/") < 2 and self.r.random() < .7:
            p += "/" + self.r.choice(NAMES)
        return p

    def off(self):
        k = self.r.random()
        if k < .3:
            return self.r.randrange(80) * 4096
        if k < .95:
            return self.r.randrange(300000)
        return self.r.randrange(3000000)

    def size(self):
        return self.r.choice((1, self.r.randrange(1, 5000), 4096, 8192, 65536,
                              self.r.randrange(1, 140000), self.r.randrange(1, 700000)
                              if self.r.random() < .1 else 100))

    # ---- operations ----

    def op_open(self):
        p, slot = self.rel(), self.r.randrange(6)
        flags = self.r.choice((os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT,
                               os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_TRUNC,
                               os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_WRONLY | os.O_APPEND,
                               os.O_RDWR | os.O_APPEND | os.O_CREAT))
        self.close(slot)
        fds = {}

        def fn(side):
            fds[side] = os.open(side.path(p), flags, 0o644)
        err, _ = self.both(f"open {p} {flags:#x} in slot {slot}", [p], fn)
        if err == 0 and not stat.S_ISDIR(os.fstat(fds[self.s]).st_mode):
            self.m.fds[slot], self.s.fds[slot] = fds[self.m], fds[self.s]
            self.slots[slot] = p
        else:
            for fd in fds.values():
                os.close(fd)

    def close(self, slot):
        for side in (self.m, self.s):
            mm = side.maps.pop(slot, None)
            if mm is not None:
                mm.close()
            fd = side.fds.pop(slot, None)
            if fd is not None:
                os.close(fd)
        self.slots.pop(slot, None)

    def on_fd(self, what, fn):
        if not self.slots:
            return
        slot = self.r.choice(sorted(self.slots))
        self.both(f"slot {slot} ({self.slots[slot]}): {what}", [self.s.fds[slot]],
                  lambda side: fn(side.fds[slot]))

    def op_pwrite(self):
        off, data = self.off(), stuff(self.r, self.size())
        self.on_fd(f"pwrite {len(data)} at {off}", lambda fd: write_all(fd, data, off))

    def op_append(self):
        data = stuff(self.r, self.size())
        self.on_fd(f"write at the end {len(data)}",
                   lambda fd: (os.lseek(fd, 0, os.SEEK_END), write_all(fd, data)))

    def op_pread(self):
        off, n = self.off(), self.size()
        self.on_fd(f"pread {n} at {off}", lambda fd: os.pread(fd, n, off))

    def op_read_dropped(self):
        off, n = self.off(), self.size()

        def fn(fd):
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(fd, n, off)
        self.on_fd(f"pread {n} at {off}, dropped", fn)

    def op_ftruncate(self):
        n = self.off()
        self.on_fd(f"ftruncate {n}", lambda fd: os.ftruncate(fd, n))

    def op_fallocate(self):
        mode = self.r.choice((0, 1, 3, 3, 16, 17))
        off, n = self.off(), self.size()
        self.on_fd(f"fallocate {mode} {n} at {off}", lambda fd: fallocate(fd, mode, off, n))

    def op_fsync(self):
        self.on_fd("fsync", os.fsync)

    def op_mmap(self):
        at, n, write = self.r.random(), self.r.randrange(1, 20000), self.r.random() < .5
        data = stuff(self.r, n)

        def fn(fd):
            size = os.fstat(fd).st_size
            if size == 0:
                return None
            with mmap.mmap(fd, size) as mm:
                off = int(at * size)
                end = min(size, off + n)
                if write:
                    mm[off:end] = data[:end - off]
                    mm.flush()
                return mm[max(0, off - 5000):end + 5000]
        self.on_fd(f"mmap {n} write={write}", fn)

    def op_map(self):
        """A mapping that stays: what others did to the file shows in it, and the other way round."""
        if not self.slots:
            return
        slot = self.r.choice(sorted(self.slots))
        size = os.fstat(self.s.fds[slot]).st_size
        off, n, write = self.off(), self.r.randrange(1, 20000), self.r.random() < .5
        data = stuff(self.r, n)
        if size == 0:
            return
        old = self.s.maps.get(slot)
        length = size if old is None or self.r.random() < .2 else len(old)
        off %= min(length, size)
        end = min(length, size, off + n)

        def fn(side):
            mm = side.maps.get(slot)
            if mm is None or len(mm) != length:
                if mm is not None:
                    mm.close()
                    del side.maps[slot]
                mm = side.maps[slot] = mmap.mmap(side.fds[slot], length)
            if write:
                mm[off:end] = data[:end - off]
                mm.flush()
            return mm[max(0, off - 5000):min(length, size, end + 5000)]
        self.both(f"slot {slot} ({self.slots[slot]}): mapped [{off}, {end}) of {length} "
                  f"write={write}", [self.s.fds[slot]], fn)

    def op_direct(self):
        off, n = self.off() // 4096 * 4096, (self.size() // 4096 + 1) * 4096
        write, data = self.r.random() < .5, stuff(self.r, n)

        def fn(fd):
            d = os.open(f"/proc/self/fd/{fd}", (os.O_RDWR if write else os.O_RDONLY) | os.O_DIRECT)
            try:
                with mmap.mmap(-1, n) as mm:
                    if write:
                        mm[:] = data
                        return os.pwrite(d, mm, off)
                    return mm[:os.preadv(d, [mm], off)]
            finally:
                os.close(d)
        self.on_fd(f"O_DIRECT {n} at {off} write={write}", fn)

    def op_sendfile(self):
        if len(self.slots) < 2:
            return
        a, b = self.r.sample(sorted(self.slots), 2)
        x, y, n = self.off(), self.off(), self.size()

        def fn(side):
            os.lseek(side.fds[b], y, os.SEEK_SET)
            return os.sendfile(side.fds[b], side.fds[a], x, n)
        if os.fstat(self.s.fds[a]).st_ino != os.fstat(self.s.fds[b]).st_ino:
            self.both(f"sendfile {n} from slot {a} at {x} to slot {b} ({self.slots[b]}) at {y}",
                      [self.s.fds[b]], fn)

    def op_copy_range(self):
        if len(self.slots) < 2:
            return
        a, b = self.r.choice(sorted(self.slots)), self.r.choice(sorted(self.slots))
        x, y, n = self.off(), self.off(), self.size()
        if os.fstat(self.s.fds[a]).st_ino == os.fstat(self.s.fds[b]).st_ino and abs(x - y) < n:
            return
        self.both(f"copy {n} from slot {a} at {x} to slot {b} ({self.slots[b]}) at {y}",
                  [self.s.fds[b]],
                  lambda side: os.copy_file_range(side.fds[a], side.fds[b], n, x, y))

    def op_fstat(self):
        def fn(fd):
            st = os.fstat(fd)
            return st.st_size, st.st_mode, st.st_nlink
        self.on_fd("fstat", fn)

    def op_write_file(self):
        p, data = self.rel(), stuff(self.r, self.size())
        mode = self.r.choice(("wb", "ab", "r+b"))

        def fn(side):
            with open(side.path(p), mode) as f:
                f.write(data)
        self.both(f"write {p} {mode} {len(data)}", [p], fn)

    def op_read_file(self):
        p = self.rel()

        def fn(side):
            with open(side.path(p), "rb") as f:
                return f.read()
        self.both(f"read {p}", [p], fn)

    def op_truncate(self):
        p, n = self.rel(), self.off()
        self.both(f"truncate {p} {n}", [p], lambda side: os.truncate(side.path(p), n))

    def op_rename(self):
        p, q = self.rel(), self.rel()
        self.both(f"rename {p} {q}", [p, q],
                  lambda side: os.rename(side.path(p), side.path(q)))

    def op_replace(self):
        p, data = self.rel(), stuff(self.r, self.size())

        def fn(side):
            with open(side.path("new"), "wb") as f:
                f.write(data)
            os.rename(side.path("new"), side.path(p))
        self.both(f"replace {p}", [p, "new"], fn)

    def op_link(self):
        p, q = self.rel(), self.rel()
        self.both(f"link {p} {q}", [p, q], lambda side: os.link(side.path(p), side.path(q)))

    def op_unlink(self):
        p = self.rel()
        self.both(f"unlink {p}", [p], lambda side: os.unlink(side.path(p)))

    def op_mkdir(self):
        p = self.rel()
        self.both(f"mkdir {p}", [p], lambda side: os.mkdir(side.path(p)))

    def op_rmdir(self):
        p = self.rel()
        self.both(f"rmdir {p}", [p], lambda side: os.rmdir(side.path(p)))

    def op_symlink(self):
        p, q = self.rel(), self.rel()
        self.both(f"symlink {q} at {p}", [p], lambda side: os.symlink(q, side.path(p)))

    def op_readlink(self):
        p = self.rel()
        self.both(f"readlink {p}", [], lambda side: os.readlink(side.path(p)))

    def op_list(self):
        p = self.r.choice(("", "d0", "d1", "d0/d1", self.rel()))
        self.both(f"list {p}", [],
                  lambda side: sorted((e.name, e.is_dir(follow_symlinks=False),
                                       e.is_symlink()) for e in os.scandir(side.path(p))))

    def op_chmod(self):
        p, mode = self.rel(), self.r.choice((0o644, 0o600, 0o755, 0o4755))
        self.both(f"chmod {p} {mode:o}", [p],
                  lambda side: os.chmod(side.path(p), mode))

    def op_utimens(self):
        p = self.rel()
        ns = self.r.choice((self.old_mtime, self.r.randrange(10**18)))
        self.both(f"utimens {p} {ns}", [p],
                  lambda side: os.utime(side.path(p), ns=(ns, ns)))

    def op_xattr(self):
        p, v = self.rel(), self.r.randbytes(self.r.randrange(1, 50))
        if self.r.random() < .5:
            self.both(f"setxattr {p}", [p],
                      lambda side: os.setxattr(side.path(p), "user.x", v))
        else:
            self.both(f"getxattr {p}", [], lambda side: os.getxattr(side.path(p), "user.x"))

    def op_stat(self):
        p = self.rel()

        def fn(side):
            st = os.lstat(side.path(p))
            size = 0 if stat.S_ISDIR(st.st_mode) else st.st_size
            return st.st_mode, st.st_nlink, st.st_uid, st.st_gid, size
        err, _ = self.both(f"stat {p}", [], fn)
        if err == 0:
            self.old_mtime = os.lstat(os.path.join(self.b, p)).st_mtime_ns
            self.same_times(p)

    def same_times(self, p):
        """Own changes show at once, times too."""
        _, a = self.one(self.m, lambda side: os.lstat(side.path(p)))
        b = os.lstat(os.path.join(self.b, p))
        for k in ("st_mtime_ns", "st_ctime_ns", "st_size", "st_mode", "st_nlink"):
            if getattr(a, k) != getattr(b, k):
                raise Wrong(f"{k} of {p}: {getattr(a, k)}, on the backing {getattr(b, k)}")

    OPS = (("open", 8), ("pwrite", 14), ("append", 5), ("pread", 14), ("read_dropped", 10),
           ("ftruncate", 4), ("fallocate", 3), ("fsync", 1), ("mmap", 5), ("copy_range", 4), ("map", 6), ("direct", 6), ("sendfile", 2),
           ("fstat", 3), ("write_file", 6), ("read_file", 12), ("truncate", 3), ("rename", 5),
           ("replace", 3), ("link", 3), ("unlink", 4), ("mkdir", 3), ("rmdir", 1),
           ("symlink", 1), ("readlink", 1), ("list", 3), ("chmod", 3), ("utimens", 3),
           ("xattr", 2), ("stat", 10))

    def run(self, until):
        names, weights = zip(*self.OPS)
        lock = open(os.path.join(self.cfg["locks"], self.name), "w")
        try:
            while time.monotonic() < until:
                op = self.r.choices(names, weights)[0]
                if self.shared:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                getattr(self, "op_" + op)()
                if self.shared:
                    fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            for slot in list(self.slots):
                try:
                    self.close(slot)
                except OSError:
                    pass


class Behind(Worker):
    """Changes the backing; after the ttl the mount must show it."""

    def change(self, p):
        r, kind = self.r, self.r.randrange(14)
        data, off = stuff(r, self.size()), self.off()
        if kind == 11:
            data = stuff(r, r.randrange(1000000, 4000000))
        b, s = os.path.join(self.b, p), self.s.path(p)
        self.log.append(f"behind: {p} kind {kind}, {len(data)} at {off}")
        del self.log[:-60]
        for path in (b, s):
            try:
                self.change_one(path, kind, data, off)
            except OSError:
                pass

    def change_one(self, path, kind, data, off):
        if kind in (0, 1, 2):     # part of it; 1, 2: mtime as before
            st = os.stat(path)
            fd = os.open(path, os.O_RDWR)
            if kind == 2:
                data = data[:max(0, st.st_size - off)]
            os.pwrite(fd, data, off)
            os.close(fd)
            if kind:
                os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
        elif kind in (3, 4):      # another file with the same size and mtime in its place
            st = os.stat(path)
            with open(path + ".new", "wb") as f:
                f.write((data * (st.st_size // len(data) + 1))[:st.st_size])
            os.utime(path + ".new", ns=(st.st_atime_ns, st.st_mtime_ns))
            os.rename(path + ".new", path)
        elif kind == 5:
            os.truncate(path, off)
        elif kind == 6:
            os.unlink(path)
        elif kind == 7:           # a directory of that name
            os.unlink(path)
            os.mkdir(path)
        elif kind == 8:
            with open(path, "ab") as f:
                f.write(data)
        elif kind == 9:           # same inode number, perhaps
            os.unlink(path)
            with open(path, "wb") as f:
                f.write(data)
        elif kind in (12, 13):    # blocks taken out of the middle, or put in
            fd = os.open(path, os.O_RDWR)
            fallocate(fd, 8 if kind == 12 else 32, off // 4096 * 4096, 4096)
            os.close(fd)
        else:
            if os.path.isdir(path):
                os.rmdir(path)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(fd, data)
            os.close(fd)

    def own(self, p):
        r = self.r
        k, data, off = r.randrange(6), stuff(r, self.size()), self.off()
        mode = r.choice((0o644, 0o600))

        def fn(side):
            path = side.path(p)
            if k == 0:
                fd = os.open(path, os.O_RDWR)
                write_all(fd, data, off)
                os.close(fd)
            elif k == 1:
                os.truncate(path, off)
            elif k == 2:
                os.chmod(path, mode)
            elif k == 3:
                with open(path, "ab") as f:
                    f.write(data)
            elif k == 4:
                os.utime(path)
            else:
                with open(path, "rb") as f:
                    f.read()
        for side in (self.m, self.s):
            try:
                fn(side)
            except OSError as e:
                if e.errno in GONE:
                    raise MountGone()

    def check(self, p):
        def read(side):
            if os.path.isdir(side.path(p)):
                return sorted(os.listdir(side.path(p)))
            with open(side.path(p), "rb") as f:
                return f.read()
        self.both(f"read {p} after the ttl", [], read)
        if os.path.lexists(os.path.join(self.b, p)):
            self.same_times(p)

    def run(self, until):
        names = [f"f{i}" for i in range(8)]
        while time.monotonic() < until:
            for p in names:
                if self.r.random() < .4:
                    self.touched = [p]
                    self.own(p)
                for _ in range(self.r.choice((0, 1, 1, 2))):
                    self.change(p)
            self.touched = []
            # the promise is a time, so a time is waited for
            time.sleep(self.cfg["ttl"] * 1.02 + .002)
            self.r.shuffle(names)
            for p in names:
                self.check(p)


def reader(cfg, until, seed):
    """Keeps the caches full of what is about to be changed."""
    r = random.Random(seed)
    while time.monotonic() < until:
        p = os.path.join(cfg["m"], "behind", f"f{r.randrange(8)}")
        try:
            os.stat(p)
            with open(p, "rb") as f:
                f.read()
                if r.random() < .3:
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as e:
            if e.errno in GONE:
                return


def dropper(until, every):
    while time.monotonic() + every < until:
        time.sleep(every)
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("2")


def guarded(number, w, until, result):
    try:
        w.run(until)
    except MountGone:
        touched = [os.path.join(w.name, p) for p in w.touched]
        result[number] = {"uncertain": touched, "ops": w.ops}
        return
    except BaseException as e:
        text = e if isinstance(e, Wrong) else traceback.format_exc()
        print(f"{w.name}: {text}\nbefore that:\n  " + "\n  ".join(w.log[-25:]), flush=True)
        result[number] = {"uncertain": [], "ops": w.ops, "failed": True}
        return
    result[number] = {"uncertain": [], "ops": w.ops}


def tree(top):
    out = {}
    for d, dirs, files in os.walk(top):
        for n in dirs + files:
            p = os.path.join(d, n)
            st = os.lstat(p)
            rel = os.path.relpath(p, top)
            if stat.S_ISLNK(st.st_mode):
                out[rel] = ("link", os.readlink(p))
            elif stat.S_ISDIR(st.st_mode):
                out[rel] = ("dir",)
            else:
                with open(p, "rb") as f:
                    out[rel] = ("file", stat.S_IMODE(st.st_mode), st.st_nlink, f.read())
    return out


def compare(a, b, what, uncertain=()):
    x, y = tree(a), tree(b)
    bad = []
    for p in sorted(set(x) | set(y)):
        if x.get(p) != y.get(p) and not any(p == u or p.startswith(u + "/") for u in uncertain):
            u, v = x.get(p), y.get(p)
            text = "missing on one side"
            if u and v:
                text = f"{u[:3]} and {v[:3]}" if u[0] != "file" or u[:3] != v[:3] else \
                    f"{len(u[3])} and {len(v[3])} bytes, first difference at " \
                    f"{first_difference(u[3], v[3])}"
            bad.append(f"  {p}: {text}")
    if bad:
        print(f"{what}: {len(bad)} differences\n" + "\n".join(bad[:20]), flush=True)
    return not bad


def play(cfg, number, seconds, seed, kill):
    until = time.monotonic() + seconds
    result = multiprocessing.Manager().dict()
    workers = [Worker(cfg, f"w{i}", seed + i) for i in range(cfg["workers"])]
    workers += [Worker(cfg, "shared", seed + 100 + i, shared=True) for i in range(2)]
    workers.append(Behind(cfg, "behind", seed + 200))
    for w in workers:
        for top in (cfg["b"], cfg["s"]):
            os.makedirs(os.path.join(top, w.name), exist_ok=True)
    subprocess.run([cfg["gildfs"], "-o", cfg["options"], cfg["b"], cfg["m"]], check=True)
    ok = compare(cfg["b"], cfg["m"], f"round {number}: backing and fresh mount")
    pid = json.loads(subprocess.run([cfg["gild"], "status", "--json", cfg["m"]], check=True,
                                    capture_output=True).stdout)["pid"]
    until = time.monotonic() + seconds
    procs = [multiprocessing.Process(target=guarded, args=(i, w, until, result))
             for i, w in enumerate(workers)]
    procs.append(multiprocessing.Process(target=reader, args=(cfg, until, seed)))
    procs.append(multiprocessing.Process(target=dropper, args=(until, cfg["drop"])))
    for p in procs:
        p.start()
    if kill:
        time.sleep(seconds * random.Random(seed).uniform(.5, .95))
        os.kill(pid, signal.SIGKILL)
    for p in procs:
        p.join()
    for i, w in enumerate(workers):
        if kill and procs[i].exitcode == -signal.SIGBUS:  # in a mapping, when the daemon went
            result[i] = {"uncertain": [w.name], "ops": 0}
        elif procs[i].exitcode != 0:
            print(f"{w.name}: ended with {procs[i].exitcode}", flush=True)
            ok = False
    results = result.values()
    uncertain = [p for v in results for p in v["uncertain"]]
    ops = sum(v["ops"] for v in results)
    ok = ok and not any(v.get("failed") for v in results)
    if kill:
        subprocess.run(["umount", cfg["m"]], check=True)
    else:
        ok = compare(cfg["s"], cfg["m"], f"round {number}: shadow and mount") and ok
        subprocess.run(["umount", cfg["m"]], check=True)
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(.01)
    ok = compare(cfg["s"], cfg["b"], f"round {number}: shadow and backing", uncertain) and ok
    if uncertain:
        for n in {u.split("/")[0] for u in uncertain}:
            shutil.rmtree(os.path.join(cfg["s"], n))
            subprocess.run(["cp", "-a", os.path.join(cfg["b"], n), cfg["s"]], check=True)
    print(f"round {number}: {ops} operations, {'killed' if kill else 'unmounted'}, "
          f"{'ok' if ok else 'FAILED'}", flush=True)
    return ok


def main():
    top, rounds, seconds, seed, ttl = (sys.argv[1], int(sys.argv[2]), float(sys.argv[3]),
                                       int(sys.argv[4]), float(sys.argv[5]) / 1000)
    options = sys.argv[6]
    cfg = {k: os.path.join(top, k) for k in ("b", "m", "s", "locks")}
    cfg.update(gildfs=os.environ["GILDFS"], gild=os.environ["GILD"], ttl=ttl, drop=seconds / 2.5,
               workers=int(os.environ.get("WORKERS", "2")))
    for k in ("b", "m", "s", "locks"):
        os.makedirs(cfg[k], exist_ok=True)
    for i in range(rounds):
        cfg["options"] = f"{options},publish-after={100 * (i % 3) + 20}ms,allow-empty"
        if not play(cfg, i, seconds, seed + 1000 * i, i % 2 == 1):
            sys.exit(1)
    compare(cfg["s"], cfg["b"], "at the end") or sys.exit(1)


main()
