# SPDX-License-Identifier: BSD-2-Clause
"""A backing in trouble; see backing-trouble.sh."""
import errno, json, os, signal, subprocess, sys, threading, time

TOP, FAULTFS = sys.argv[1:3]
B, F, M, CONTROL, CARD, IMAGE = (f"{TOP}/{n}" for n in ("b", "f", "m", "control", "c", "image"))
GILD, GILDFS = os.environ["GILD"], os.environ["GILDFS"]
SOON = 15
TRANSPORT = ("EIO", "ETIMEDOUT", "ENOTCONN", "EHOSTUNREACH")
bad = 0


def wrong(text):
    global bad
    bad += 1
    print("WRONG:", text, flush=True)


def run(*args, **kw):
    return subprocess.run(args, check=True, **kw)


def wait(what, state):
    until = time.monotonic() + SOON
    while not state():
        if time.monotonic() > until:
            wrong(f"not within {SOON} s: {what}")
            return
        time.sleep(.01)


def mount(backing, *options):
    run(GILDFS, "-o", ",".join((f"card={CARD}", "admit=always", *options)), backing, M)
    return json.loads(run(GILD, "status", "--json", M, capture_output=True).stdout)["pid"]


def umount(pid):
    run("umount", M)
    wait("the daemon ends", lambda: not os.path.exists(f"/proc/{pid}"))


def control(text):
    with open(CONTROL + ".new", "w") as f:
        f.write(text)
    os.rename(CONTROL + ".new", CONTROL)


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def get(path, drop=True):
    """Its bytes; drop: from the daemon, not from the kernel's pages."""
    fd = os.open(path, os.O_RDONLY)
    try:
        if drop:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, 1 << 20, 0)
    finally:
        os.close(fd)


def error(fn, *args):
    try:
        fn(*args)
        return None
    except OSError as e:
        return errno.errorcode[e.errno]


def expect(what, got, *want):
    if got not in want:
        got = f"{len(got)} bytes" if isinstance(got, bytes) else got
        wrong(f"{what}: {got}, expected " +
              " or ".join(f"{len(w)} bytes" if isinstance(w, bytes) else str(w) for w in want))


def cached(name, data):
    """Until flash has it: files that were changed a moment ago are not cached yet."""
    def hit():
        before = stats()["read"]["hits"]
        expect(f"reading {name}", get(f"{M}/{name}"), data)
        return stats()["read"]["hits"] > before
    wait(f"{name} is cached", hit)


def stats():
    return json.loads(run(GILD, "stats", "--json", M, capture_output=True).stdout)


def disk():
    """A backing on a disk of its own, with its mount-point directory empty beneath."""
    with open(IMAGE, "wb") as f:
        f.truncate(32 << 20)
    run("mkfs.ext4", "-qF", IMAGE)
    run("mount", "-o", "loop", IMAGE, B)


def beneath():
    """What a later mount would hide: looked at through a bind mount of the directory above."""
    os.makedirs(f"{TOP}/under", exist_ok=True)
    run("mount", "--bind", TOP, f"{TOP}/under")
    names = os.listdir(f"{TOP}/under/b")
    run("umount", f"{TOP}/under")
    return names


def unmounted_and_back():
    disk()
    put(B + "/a", b"a" * 9000)
    put(B + "/new", b"n" * 500)
    pid = mount(B, "ttl=50ms")
    cached("a", b"a" * 9000)
    if subprocess.run(["umount", B], stderr=subprocess.DEVNULL).returncode == 0:
        wrong("the disk could be unmounted under the mount")
    run("umount", "-l", B)
    expect("a hit, unmounted", get(M + "/a"), b"a" * 9000)
    expect("a miss, unmounted", get(M + "/new"), b"n" * 500)
    expect("the listing, unmounted", sorted(os.listdir(M)), ["a", "lost+found", "new"])
    put(M + "/while", b"w" * 700)
    expect("the directory beneath", os.listdir(B), [])
    run("mount", "-t", "tmpfs", "none", B)
    put(M + "/while2", b"x" * 700)
    expect("another filesystem mounted there", os.listdir(B), [])
    expect("a hit, another filesystem there", get(M + "/a"), b"a" * 9000)
    run("umount", B)
    loop = run("losetup", "-j", IMAGE, "-n", "-O", "NAME", capture_output=True, text=True).stdout
    run("mount", loop.split()[0], B)
    expect("the disk, back", get(B + "/while", False), b"w" * 700)
    put(B + "/a", b"A" * 8000)
    wait("changes show again", lambda: get(M + "/a") == b"A" * 8000)
    put(M + "/a", b"b" * 10)
    expect("writing, back", get(B + "/a", False), b"b" * 10)
    expect("beneath", beneath(), [])

    fd = os.open(M + "/a", os.O_RDWR)
    os.fsync(fd)
    run(GILD, "flush", M)      # lets go of descriptors for writing
    run("mount", "-o", "remount,ro", B)
    expect("writing, read-only", error(os.pwrite, fd, b"z", 0), "EROFS")
    expect("creating, read-only", error(put, M + "/none", b""), "EROFS")
    expect("reading, read-only", get(M + "/a"), b"b" * 10)
    run("mount", "-o", "remount,rw", B)
    os.pwrite(fd, b"z", 0)
    expect("writing again", get(M + "/a"), b"z" + b"b" * 9)
    os.close(fd)
    umount(pid)
    run("umount", B)


def below():
    """A filesystem that comes and goes below the backing."""
    os.mkdir(B + "/sub")
    put(B + "/sub/under", b"under")
    pid = mount(B, "ttl=50ms")
    expect("before", os.listdir(M + "/sub"), ["under"])
    run("mount", "-t", "tmpfs", "none", B + "/sub")
    put(B + "/sub/on", b"on" * 5000)
    wait("the mount below shows", lambda: os.listdir(M + "/sub") == ["on"])
    expect("a file there", get(M + "/sub/on"), b"on" * 5000)
    put(M + "/sub/more", b"more")
    expect("written there", get(B + "/sub/more", False), b"more")
    expect("not the one below", error(os.stat, M + "/sub/under"), "ENOENT")
    run(GILD, "flush", M)      # lets go of idle descriptors there
    wait("it can be unmounted",
         lambda: subprocess.run(["umount", B + "/sub"], stderr=subprocess.DEVNULL).returncode == 0)
    wait("what was below shows", lambda: error(os.listdir, M + "/sub") is None and
         os.listdir(M + "/sub") == ["under"])
    expect("gone with it", error(os.stat, M + "/sub/more"), "ENOENT")

    os.rename(B, B + ".old")
    os.mkdir(B)
    put(B + "/impostor", b"")
    expect("root directory replaced", sorted(os.listdir(M)), ["sub"])
    put(M + "/sub/new", b"new")
    expect("written to the old one", get(B + ".old/sub/new", False), b"new")
    umount(pid)
    run("rm", "-r", B)
    os.rename(B + ".old", B)
    run("rm", "-r", B + "/sub")


def failing(mode):
    """Every error in every place; then all is well again, at once."""
    put(B + "/hit", b"h" * 70000)
    os.makedirs(B + "/d", exist_ok=True)
    if not os.path.exists(B + "/d/hit"):
        os.link(B + "/hit", B + "/d/hit")
    for n in ("removed", "removed2", "moved"):
        put(f"{B}/{n}", b"r")
    for n in range(8):
        put(f"{B}/miss{n}", b"m" * 5000)
    pid = mount(F, f"coherence={mode}", *(["ttl=50ms"] if mode == "ttl" else []))
    cached("hit", b"h" * 70000)
    held = os.open(M + "/d/hit", os.O_RDONLY)  # or the kernel may forget the names
    for n in ("removed", "removed2", "moved"):
        os.stat(f"{M}/{n}")
    os.unlink(M + "/removed")
    os.rename(M + "/moved", M + "/moved2")
    os.unlink(B + "/removed2")
    wait("removed there", lambda: error(os.stat, M + "/removed2") == "ENOENT")
    files = iter(range(8))
    known = os.open(M + "/hit", os.O_RDONLY)
    for name in TRANSPORT + ("ESTALE",):
        number = getattr(errno, name)
        control(f"getattr {number}\n")
        time.sleep(.1 if mode == "ttl" else 0)  # past the ttl
        fresh = f"{M}/miss{next(files)}"
        if mode == "ttl" and name != "ESTALE":
            expect(f"{name}, a check cannot be made", error(os.fstat, known), None)
            os.posix_fadvise(known, 0, 0, os.POSIX_FADV_DONTNEED)
            expect(f"{name}, a hit", os.pread(known, 100000, 0), b"h" * 70000)
            time.sleep(.1)  # names are asked for again
            expect(f"{name}, a hit by its name", get(M + "/d/hit"), b"h" * 70000)
            expect(f"{name}, a name removed here", error(os.stat, M + "/removed"), name)
            expect(f"{name}, a name removed there", error(os.stat, M + "/removed2"), name)
            expect(f"{name}, a name moved here", error(os.stat, M + "/moved"), name)
        else:
            expect(f"{name}, a check cannot be made", error(os.stat, M + "/hit"), name)
        expect(f"{name}, a new file", error(get, fresh), name)
        expect(f"{name}, a name that is not there", error(os.stat, M + "/none"), name)
        if mode == "strict":
            expect(f"{name}, an open file", error(os.pread, known, 100, 0), name)
        control("")
        wait(f"{name}: well again", lambda: error(get, fresh) is None)
        expect(f"{name}, well again", get(M + "/hit"), b"h" * 70000)
    for op in ("read", "open"):
        for name in TRANSPORT:
            control(f"{op} {getattr(errno, name)}\n")
            expect(f"{op} fails, a hit", get(M + "/hit"), b"h" * 70000)
            control("")
    control(f"readdir {errno.EIO}\n")
    expect("a directory cannot be read", error(os.listdir, M), "EIO")
    for name in ("EIO", "ENOSPC", "EDQUOT"):
        control(f"write {getattr(errno, name)}\n")
        fd = os.open(M + "/hit", os.O_RDWR)
        got = error(os.pwrite, fd, b"X" * 100, 0) or error(os.fsync, fd)
        expect(f"a write fails with {name}", got, name)
        control("")
        os.close(fd)
        expect("after a failed write", get(M + "/hit"), get(B + "/hit", False))
    os.close(known)
    os.close(held)
    umount(pid)


def hanging():
    """Hits go on while the ttl lasts; what has to ask waits, and goes on when the backing does."""
    put(B + "/hit", b"h" * 70000)
    put(B + "/miss", b"m" * 5000)
    pid = mount(F, "ttl=1h")
    cached("hit", b"h" * 70000)
    os.stat(M + "/miss")
    control("all hang\n")
    late = threading.Thread(target=lambda: expect("after the hang", get(M + "/miss"), b"m" * 5000))
    late.start()
    wait("a read waits for the backing", lambda: stats()["fuse"]["pooled"] > 0)
    for _ in range(20):
        expect("a hit, the backing hangs", get(M + "/hit"), b"h" * 70000)
    if not late.is_alive():
        wrong("a miss did not wait for a backing that hangs")
    control("")
    late.join(SOON)
    if late.is_alive():
        wrong("a miss goes on waiting after the hang")
    umount(pid)


def gone_and_back(*options):
    """A network filesystem whose client dies and is mounted again."""
    put(B + "/hit", b"h" * 70000)
    put(B + "/miss", b"m" * 5000)
    pid = mount(F, "ttl=50ms", *options)
    cached("hit", b"h" * 70000)
    fd = os.open(M + "/hit", os.O_RDONLY)
    run("umount", "-l", F)     # the mount point shows its empty directory now
    with open(f"{TOP}/faultfs.pid") as f:
        client = int(f.read())
    os.kill(client, signal.SIGKILL)
    wait("the client ends", lambda: not os.path.exists(f"/proc/{client}"))
    expect("a miss, gone", error(get, M + "/miss"), "ENOTCONN")
    expect("a listing, gone", error(os.listdir, M), "ENOTCONN")
    expect("a write, gone", error(put, M + "/new", b"x"), "ENOTCONN")
    expect("an open file, gone", os.pread(fd, 100000, 0), b"h" * 70000)
    expect("beneath", os.listdir(F), [])
    start_faultfs()
    expect("not by itself", error(get, M + "/miss"), "ENOTCONN")
    os.close(fd)
    umount(pid)
    put(B + "/hit", b"H" * 60000)
    pid = mount(F, "ttl=50ms", *options)
    expect("mounted again", (get(M + "/hit"), get(M + "/miss")), (b"H" * 60000, b"m" * 5000))
    umount(pid)


def start_faultfs():
    p = subprocess.Popen([FAULTFS, B, F, CONTROL, "-f"])
    with open(f"{TOP}/faultfs.pid", "w") as f:
        f.write(str(p.pid))
    threading.Thread(target=p.wait, daemon=True).start()
    wait("faultfs is mounted", lambda: os.path.ismount(F))


def main():
    for d in (B, F, M):
        os.mkdir(d)
    control("")
    parts = sys.argv[3:] or ("disk", "below", "ttl", "strict", "hang", "gone")
    if "disk" in parts:
        unmounted_and_back()
    if "below" in parts:
        below()
    start_faultfs()
    for mode in ("ttl", "strict"):
        if mode in parts:
            failing(mode)
    if "hang" in parts:
        hanging()
    if "gone" in parts:
        gone_and_back("fsid=trouble")
    run("umount", F)
    sys.exit(bad != 0)


main()
