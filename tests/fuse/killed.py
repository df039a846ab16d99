# SPDX-License-Identifier: BSD-2-Clause
"""Kills daemons at the worst moment; see killed.sh."""
import errno, json, os, random, signal, subprocess, sys, time
from multiprocessing import Process

TOP, FAULTFS, ROUNDS, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
B, F, M, CONTROL = (os.path.join(TOP, n) for n in ("b", "f", "m", "control"))
SOON = 10
DEAD = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)


def fail(text):
    print("FAIL:", text, flush=True)
    subprocess.run(["umount", "-f", M], check=False)  # or nobody ever gets rid of it
    control("")
    os._exit(1)


def wait(what, state, limit=SOON):
    until = time.monotonic() + limit
    while not state():
        if time.monotonic() > until:
            fail(f"not within {limit} s: {what}")
        time.sleep(.01)


def control(text):
    with open(CONTROL + ".new", "w") as f:
        f.write(text)
    os.rename(CONTROL + ".new", CONTROL)


def mount(backing, *options):
    subprocess.run([os.environ["GILDFS"], "-o", ",".join(("card=" + TOP + "/c",) + options),
                    backing, M], check=True)
    out = subprocess.run([os.environ["GILD"], "status", "--json", M], check=True,
                         capture_output=True).stdout
    return json.loads(out)["pid"]


def watchdog_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        dogs = [int(p) for p in f.read().split()]
    if len(dogs) != 1:
        fail(f"the daemon has {len(dogs)} children")
    return dogs[0]


def watchdog_itself():
    """It ends with the daemon, ignores what ends services, and is not needed."""
    pid = mount(B)
    dog = watchdog_of(pid)
    for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(dog, sig)
    if len(os.listdir(f"/proc/{dog}/fd")) > 5:
        fail("the watchdog holds " + " ".join(os.listdir(f"/proc/{dog}/fd")))
    subprocess.run(["umount", M], check=True)
    wait("the daemon ends", lambda: gone(pid))
    wait("its watchdog ends", lambda: gone(dog))
    pid = mount(B)
    os.kill(watchdog_of(pid), signal.SIGKILL)
    for n in os.listdir(M):
        read_cold(f"{M}/{n}")
    os.kill(pid, signal.SIGTERM)
    wait("a daemon without watchdog ends", lambda: gone(pid))
    if os.path.ismount(M):
        fail("still mounted after SIGTERM without a watchdog")


def rewrite(path, r, size):
    """Same size, same mtime: the kernel cannot see it, so its pages are dropped from the daemon."""
    st = os.stat(path)
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, r.randbytes(size), 0)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    os.close(fd)


def threads(pid):
    for t in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{t}/stat") as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
            yield name, rest.split()[0]
        except OSError:
            pass


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z" and \
                len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


def until_dead(fn):
    """Its exit code is 0 only if an error of a dead mount ended it."""
    try:
        while True:
            fn()
    except OSError as e:
        os._exit(0 if e.errno in DEAD else 1)


def start(fn):
    p = Process(target=until_dead, args=(fn,))
    p.start()
    return p


def after_kill(pid, procs, what):
    """The promise, without anybody's help."""
    for p in procs:
        p.join(SOON)
        if p.exitcode is None:
            fail(f"{what}: a process that uses the mount hangs")
        if p.exitcode:
            fail(f"{what}: a process did not see a dead mount ({p.exitcode})")
    wait(f"{what}: the daemon's process goes away", lambda: gone(pid))
    try:
        os.listdir(M)
        fail(f"{what}: the dead mount is gone by itself, and programs write beneath it")
    except OSError as e:
        if e.errno != errno.ENOTCONN:
            fail(f"{what}: {e}")
    subprocess.run(["umount", M], check=True)


def read_cold(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(fd, 200000, 0)
    finally:
        os.close(fd)


def the_moment(r, sig):
    """A READ that hangs in the backing, and an invalidation that waits for its page."""
    subprocess.run([FAULTFS, B, F, CONTROL], check=True)
    pid = mount(F, "ttl=1ms", "fsid=killed")
    os.stat(M + "/f0")
    control("read hang\n")
    reader = start(lambda: read_cold(M + "/f0"))
    wait("the READ is in the pool", lambda: ("gild-pool", "D") in threads(pid) or
         stuck_in_read(pid))
    rewrite(B + "/f0", r, 200000)
    stat = start(lambda: os.stat(M + "/f0"))
    wait("a thread waits for the locked page", lambda: ("gild-park", "D") in threads(pid))
    os.kill(pid, sig)
    after_kill(pid, [reader, stat], f"{sig.name} while pages are dropped")
    control("")
    subprocess.run(["umount", F], check=True)


def stuck_in_read(pid):
    for t in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{t}/syscall") as f:
                if f.read().split()[0] == "17":
                    return True
        except OSError:
            pass
    return False


def storm(r, number):
    pid = mount(B, "ttl=1ms")
    names = [f"f{i}" for i in range(4)]
    procs = [start(lambda n=n: read_cold(f"{M}/{n}")) for n in names * 2]
    procs += [start(lambda n=n: os.stat(f"{M}/{n}")) for n in names]
    changer = Process(target=lambda: [rewrite(f"{B}/{r.choice(names)}", r, 200000)
                                      for _ in iter(int, 1)])
    changer.start()
    time.sleep(r.uniform(.1, .6))   # the test's randomness, not a wait for something
    os.kill(pid, signal.SIGKILL)
    after_kill(pid, procs, f"storm {number}")
    changer.kill()
    changer.join()


def main():
    r = random.Random(SEED)
    for i in range(4):
        with open(f"{B}/f{i}", "wb") as f:
            f.write(r.randbytes(200000))
    for sig in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV):
        the_moment(r, sig)
    watchdog_itself()
    for i in range(ROUNDS):
        storm(r, i)
    pid = mount(B)
    with open(M + "/f0", "rb") as f, open(B + "/f0", "rb") as g:
        if f.read() != g.read():
            fail("the next mount shows something else")
    subprocess.run(["umount", M], check=True)
    wait("the daemon ends", lambda: gone(pid))


main()
