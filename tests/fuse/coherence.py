# SPDX-License-Identifier: BSD-2-Clause
"""Changes behind the mount, each kind in each coherence mode; see coherence.sh.

A batch is one mode and one way to look first, because the first look may be what makes the others
right. In a batch every case has a directory of its own: all are made, read through the mount until
flash and the kernel hold them, changed behind the mount; then the mode's promise is awaited, and the
mount must show exactly what the backing shows, in every way to look at it.
"""
import mmap, os, random, stat, subprocess, sys, time
from errno import ESTALE

TOP, SEED = sys.argv[1], int(sys.argv[2])
B, M, CARD = (os.path.join(TOP, n) for n in ("b", "m", "c"))
GILD, GILDFS = os.environ["GILD"], os.environ["GILDFS"]
TTL = .08
TICK = .02        # the kernel counts timeouts in jiffies
SETTLE = .3       # from then on a file that was changed behind the mount is cached
BIG = 3 * 1024 * 1024
MODES = {"ttl": f"coherence=ttl,ttl={int(TTL * 1000)}ms", "strict": "coherence=strict",
         "exclusive": "coherence=exclusive"}
r = random.Random(SEED)


def until(moment):
    while time.monotonic() < moment:
        time.sleep(moment - time.monotonic() if moment > time.monotonic() else 0)


def run(*args):
    subprocess.run(args, check=True)


# ---- changes behind the mount ----

def put(p, n=30000):
    with open(p, "wb") as f:
        f.write(r.randbytes(n))


def keep_mtime(p, change):
    st = os.stat(p)
    change()
    os.utime(p, ns=(st.st_atime_ns, st.st_mtime_ns), follow_symlinks=False)


def overwrite(p, off=0, n=None):
    """In place, without truncating."""
    fd = os.open(p, os.O_WRONLY)
    os.pwrite(fd, r.randbytes(n or os.fstat(fd).st_size), off)
    os.close(fd)


def replace(p, same=True):
    st = os.stat(p)
    put(p + ".new", st.st_size)
    if same:
        os.utime(p + ".new", ns=(st.st_atime_ns, st.st_mtime_ns))
    os.rename(p + ".new", p)


def rmtree(p):
    subprocess.run(["rm", "-rf", p], check=True)


def tree(p, n=3000):
    os.mkdir(p)
    os.mkdir(p + "/sub")
    for name in ("x", "y", "sub/z"):
        put(f"{p}/{name}", n)


def reuse_inode(p, make, remove):
    """Removes and makes again until the new one has the old one's inode number, if it ever has."""
    ino = os.lstat(p).st_ino
    spare = []
    for i in range(20):
        remove(p)
        make(p)
        if os.lstat(p).st_ino == ino:
            break
        spare.append(f"{p}.spare{i}")
        os.rename(p, spare[-1])
        make(p)
        ino = os.lstat(p).st_ino
    for s in spare:
        remove(s)


def into_directory(p):
    os.unlink(p)
    tree(p)


def symlink_again(p, target):
    """Same length, inode number if the filesystem likes, and times."""
    st = os.lstat(p)
    os.unlink(p)
    os.symlink(target, p)
    os.utime(p, ns=(st.st_atime_ns, st.st_mtime_ns), follow_symlinks=False)


def exchange(a, b):
    os.rename(a, a + ".t")
    os.rename(b, a)
    os.rename(a + ".t", b)


def truncate_rewrite(p):
    def change():
        n = os.stat(p).st_size
        os.truncate(p, 0)
        put(p, n)
    keep_mtime(p, change)


def move_and_make(d):
    os.rename(d, d + ".moved")
    tree(d)


def there_and_back(p):
    into_directory(p)
    rmtree(p)
    os.symlink("nowhere", p)
    os.unlink(p)
    put(p)


# name: (made before, changed, what is named to gild invalidate)
CASES = {
    "rewritten": (lambda d: put(d + "/f"), lambda d: overwrite(d + "/f"), ["f"]),
    "same mtime": (lambda d: put(d + "/f"),
                   lambda d: keep_mtime(d + "/f", lambda: overwrite(d + "/f")), ["f"]),
    "one byte": (lambda d: put(d + "/f"),
                 lambda d: keep_mtime(d + "/f", lambda: overwrite(d + "/f", 20000, 1)), ["f"]),
    "big, in the middle": (lambda d: put(d + "/f", BIG),
                           lambda d: keep_mtime(d + "/f",
                                                lambda: overwrite(d + "/f", BIG // 2, 9000)), ["f"]),
    "truncated, rewritten": (lambda d: put(d + "/f"), lambda d: truncate_rewrite(d + "/f"), ["f"]),
    "replaced": (lambda d: put(d + "/f"), lambda d: replace(d + "/f"), ["f"]),
    "replaced, younger": (lambda d: put(d + "/f"), lambda d: replace(d + "/f", False), ["f"]),
    "shrunk": (lambda d: put(d + "/f"), lambda d: os.truncate(d + "/f", 5001), ["f"]),
    "shrunk, same mtime": (lambda d: put(d + "/f"),
                           lambda d: keep_mtime(d + "/f", lambda: os.truncate(d + "/f", 5001)),
                           ["f"]),
    "emptied": (lambda d: put(d + "/f"), lambda d: os.truncate(d + "/f", 0), ["f"]),
    "grown": (lambda d: put(d + "/f"), lambda d: os.truncate(d + "/f", 50001), ["f"]),
    "appended": (lambda d: put(d + "/f"), lambda d: overwrite(d + "/f", 30000, 9999), ["f"]),
    "exchanged": (lambda d: (put(d + "/f"), put(d + "/g")),
                  lambda d: exchange(d + "/f", d + "/g"), ["f", "g"]),
    "to directory": (lambda d: put(d + "/f"), lambda d: into_directory(d + "/f"), ["f"]),
    "to symlink": (lambda d: put(d + "/f"),
                   lambda d: (os.unlink(d + "/f"), os.symlink("g", d + "/f"), put(d + "/g")),
                   ["f", "g"]),
    "directory to file": (lambda d: tree(d + "/f"), lambda d: (rmtree(d + "/f"), put(d + "/f")),
                          ["f"]),
    "there and back": (lambda d: put(d + "/f"), lambda d: there_and_back(d + "/f"), ["f"]),
    "directory replaced": (lambda d: (tree(d + "/t"), tree(d + "/u", 4000)),
                           lambda d: (rmtree(d + "/t"), os.rename(d + "/u", d + "/t")),
                           ["t", "u"]),
    "directory moved, made anew": (lambda d: tree(d + "/t"), lambda d: move_and_make(d + "/t"),
                                   ["t", "t.moved"]),
    "directories exchanged": (lambda d: (tree(d + "/t"), tree(d + "/u")),
                              lambda d: exchange(d + "/t", d + "/u"), ["t", "u"]),
    "not there before": (lambda d: None,
                         lambda d: (put(d + "/n"), tree(d + "/t"), os.symlink("n", d + "/l")),
                         ["n", "t", "l"]),
    "deleted": (lambda d: (put(d + "/f"), tree(d + "/t")),
                lambda d: (os.unlink(d + "/f"), rmtree(d + "/t")), ["f", "t"]),
    "listing": (lambda d: tree(d + "/t"),
                lambda d: (put(d + "/t/new"), os.unlink(d + "/t/x"),
                           os.rename(d + "/t/y", d + "/t/yy")), ["t"]),
    "through a link": (lambda d: (put(d + "/f"), os.link(d + "/f", d + "/g")),
                       lambda d: keep_mtime(d + "/g", lambda: overwrite(d + "/g")), ["f"]),
    "a link more": (lambda d: put(d + "/f"), lambda d: os.link(d + "/f", d + "/g"), ["f", "g"]),
    "a link less": (lambda d: (put(d + "/f"), os.link(d + "/f", d + "/g")),
                    lambda d: os.unlink(d + "/g"), ["f", "g"]),
    "mode and owner": (lambda d: (put(d + "/f"), tree(d + "/t")),
                       lambda d: (os.chmod(d + "/f", 0o640), os.chown(d + "/f", 7, 8),
                                  os.chmod(d + "/t", 0o2711)), ["f", "t"]),
    "times": (lambda d: put(d + "/f"), lambda d: os.utime(d + "/f", ns=(1, 2)), ["f"]),
    "xattr": (lambda d: (put(d + "/f"), os.setxattr(d + "/f", "user.a", b"1"),
                         os.setxattr(d + "/f", "user.b", b"1")),
              lambda d: (os.setxattr(d + "/f", "user.a", b"22"), os.removexattr(d + "/f", "user.b"),
                         os.setxattr(d + "/f", "user.c", b"3")), ["f"]),
    "inode reused": (lambda d: put(d + "/f"), lambda d: reuse_inode(d + "/f", put, os.unlink),
                     ["f"]),
    "inode reused, another type": (lambda d: put(d + "/f"),
                                   lambda d: (os.unlink(d + "/f"), os.symlink("x", d + "/f")),
                                   ["f"]),
    "symlink": (lambda d: (os.symlink("aaaa", d + "/l"), put(d + "/aaaa"), put(d + "/bbbb")),
                lambda d: symlink_again(d + "/l", "bbbb"), ["l"]),
    "moved": (lambda d: (tree(d + "/t"), tree(d + "/u")),
              lambda d: os.rename(d + "/t/x", d + "/u/new"), ["t", "u"]),
    "put over another": (lambda d: (put(d + "/f"), put(d + "/g")),
                         lambda d: os.rename(d + "/g", d + "/f"), ["f", "g"]),
}
NAMES = ("f", "g", "n", "l", "t", "u", "aaaa", "t.moved", "t/x", "t/y", "t/yy", "t/new", "t/sub/z",
         "u/x", "u/new", "f/x", "f/sub/z", "t.moved/x", "t.moved/sub/z")


# ---- ways to look ----

def answer(fn, *args):
    try:
        return fn(*args)
    except OSError as e:
        return e.errno


def look_stat(p):
    st = os.lstat(p)
    size = 0 if stat.S_ISDIR(st.st_mode) else st.st_size
    return st.st_ino, st.st_mode, st.st_uid, st.st_gid, st.st_nlink, size, st.st_mtime_ns, \
        st.st_ctime_ns


def look_read(p):
    with open(p, "rb") as f:
        return f.read()


def look_mmap(p):
    with open(p, "rb") as f:
        if not os.fstat(f.fileno()).st_size:
            return b""
        with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
            return bytes(m)


def look_list(p):
    return sorted((e.name, e.is_dir(follow_symlinks=False), e.inode()) for e in os.scandir(p))


def look_link(p):
    return os.readlink(p)


def look_xattr(p):
    return {k: os.getxattr(p, k, follow_symlinks=False)
            for k in os.listxattr(p, follow_symlinks=False)}


LOOKS = {"read": look_read, "stat": look_stat, "mmap": look_mmap, "list": look_list,
         "xattr": look_xattr, "readlink": look_link}


FIRST = ("read", "stat", "open") if not os.environ.get("GILD_LONG") else (*LOOKS, "open")


def short(x):
    return f"{len(x)} bytes" if isinstance(x, bytes) and len(x) > 40 else str(x)


class Case:
    def __init__(self, batch, name):
        self.name = name
        self.rel = f"{batch}/{name.replace(' ', '_').replace(',', '')}"
        self.b, self.m = os.path.join(B, self.rel), os.path.join(M, self.rel)
        os.makedirs(self.b)
        self.fds = []
        CASES[name][0](self.b)

    def warm(self):
        for n in ("",) + NAMES:
            for look in LOOKS.values():
                answer(look, f"{self.m}/{n}")

    def open(self):
        for n in NAMES:
            b, m = f"{self.b}/{n}", f"{self.m}/{n}"
            if os.path.isfile(b) and not os.path.islink(b):
                self.fds.append((n, os.open(m, os.O_RDONLY), os.open(b, os.O_RDONLY)))
                look_read(m)   # its pages are there now, whatever happened since it was warmed

    def change(self):
        CASES[self.name][1](self.b)

    def wrong(self, where, got, want):
        print(f"STALE: {self.name}: {where}: {short(got)}, on the backing {short(want)}", flush=True)
        return 1

    def look_open(self):
        """What was opened before: the object, whatever its name is now. One removed behind the mount
        may be out of reach."""
        bad = 0
        for n, fd, other in self.fds:
            want = os.pread(other, BIG + 1, 0), os.fstat(other).st_size
            got = answer(lambda f=fd: (os.pread(f, BIG + 1, 0), os.fstat(f).st_size))
            if got != want and not (got == ESTALE and os.fstat(other).st_nlink == 0):
                bad += self.wrong(f"{n}, opened before",
                                  got[0] if isinstance(got, tuple) else got, want[0])
        return bad

    def look_by(self, way):
        if way == "open":
            return self.look_open()
        bad = 0
        for n in ("",) + NAMES:
            got, want = (answer(LOOKS[way], f"{top}/{n}") for top in (self.m, self.b))
            if got != want:
                bad += self.wrong(f"{way} of {n or 'its directory'}", got, want)
        return bad

    def check(self, first):
        return self.look_by(first) + sum(self.look_by(w) for w in (*LOOKS, "open") if w != first)

    def close(self):
        for _, fd, other in self.fds:
            os.close(fd)
            os.close(other)


def mount(mode):
    run(GILDFS, "-o", f"card={CARD},admit=always,allow-empty,publish-after=50ms,{MODES[mode]}", B, M)


def umount():
    run("umount", M)


def promise(mode, cases, changed, by_path):
    if mode == "ttl":
        until(changed + TTL + TICK)
    elif mode == "exclusive" and by_path:
        for c in cases:
            run(GILD, "invalidate", M, *(f"{c.rel}/{n}" for n in CASES[c.name][2]))
    elif mode == "exclusive":
        run(GILD, "invalidate", M)


def prime(cases):
    """Pages, attributes, names and flash hold it."""
    until(time.monotonic() + SETTLE)
    for c in cases:
        c.warm()
    run(GILD, "flush", M)
    for c in cases:
        c.warm()


def batch(mode, number, first):
    cases = [Case(f"{mode}{number}", n) for n in CASES]
    prime(cases)
    for c in cases:
        c.open()
        c.change()
    promise(mode, cases, time.monotonic(), number % 2 == 0)
    bad = sum(c.check(first) for c in cases)
    for c in cases:
        c.close()
    if bad:
        print(f"{mode}, first look by {first}: {bad} stale answers", flush=True)
    return bad


def while_down(mode):
    mount(mode)
    cases = [Case(f"{mode}-down", n) for n in CASES]
    prime(cases)
    umount()
    for c in cases:
        c.change()
    mount(mode)
    bad = sum(c.check(r.choice(list(LOOKS))) for c in cases)
    umount()
    if bad:
        print(f"{mode}, changed while not mounted: {bad} stale answers", flush=True)
    return bad


def main():
    bad = 0
    for mode in MODES:
        mount(mode)
        for number, first in enumerate(FIRST):
            bad += batch(mode, number, first)
        umount()
        bad += while_down(mode)
        print(f"{mode}: {len(CASES)} cases", flush=True)
    sys.exit(bad != 0)


main()
