# SPDX-License-Identifier: BSD-2-Clause
"""Cases of operations.py: bytes, sizes, holes, mappings, locks, times."""
import ctypes, fcntl, mmap, os, struct, time
from operations import ROOT, USER, case, content, digest, fallocate, get, in_child, libc, put

RD, WR, RW, CR, AP = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_APPEND
KEEP, PUNCH = 1, 2


def forget(fd):
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def bus(path, size, at):
    f = os.open(path, RW)
    m = mmap.mmap(f, size)
    os.ftruncate(f, 5000)
    return m[at]


@case()
def mappings(o, d):
    f = os.open(d('f'), RW | CR)
    os.write(f, b'0123456789' * 1000)
    shared = mmap.mmap(f, 10000)
    private = mmap.mmap(f, 10000, mmap.MAP_PRIVATE)
    private[0:3] = b'PPP'
    o.note('private', (shared[0:3], os.pread(f, 3, 0), private[0:3]))
    shared[5000:5004] = b'SSSS'
    o(os.pread, f, 4, 5000)
    os.pwrite(f, b'WWWW', 6000)
    o.note('shared', shared[6000:6004])
    o.note('elsewhere', in_child(USER if os.getuid() else ROOT, lambda: mmap.mmap(
        os.open(d('f'), RD), 10000, prot=mmap.PROT_READ)[4999:5005]))
    pid = os.fork()
    if pid == 0:
        shared[9000:9005] = b'child'
        os._exit(0)
    os.waitpid(pid, 0)
    o(os.pread, f, 5, 9000)
    shared.flush()
    forget(f)
    o.note('content', content(d('f')))
    o(mmap.mmap, os.open(d('f'), RD), 10000, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    o(mmap.mmap, os.open(d('f'), WR), 10000, prot=mmap.PROT_READ)
    o.note('rest of the last page', mmap.mmap(f, 10000)[9999:10000])
    who = USER if os.getuid() else ROOT
    put(d('t'), b't' * 20000)
    o.note('beyond the end', in_child(who, lambda: bus(d('t'), 20000, 12000)))
    put(d('t'), b't' * 20000)
    o.note('zeroes', in_child(who, lambda: bus(d('t'), 20000, 6000)))
    g = os.open(d('ap'), RW | CR | AP)
    os.write(g, b'a' * 5000)
    with mmap.mmap(g, 5000) as m:
        m[100:103] = b'map'
        os.write(g, b'b' * 100)
        m.flush()
    o.note('append', content(d('ap')))
    shared[1:4] = b'end'
    os.unlink(d('f'))
    shared[4:7] = b'end'
    shared.flush()
    o(os.pread, f, 7, 0)


@case()
def appends(o, d):
    f = os.open(d('f'), RW | CR | AP)
    os.write(f, b'one')
    o(os.pwrite, f, b'two', 0)  # Linux appends
    o(os.lseek, f, 0, os.SEEK_CUR)
    o.note('content', get(d('f')))
    g = os.open(d('f'), WR | AP)
    os.truncate(d('f'), 2)
    os.write(g, b'G')
    os.write(f, b'F')
    o.note('content', get(d('f')))
    os.ftruncate(f, 1 << 20)
    os.write(g, b'end')
    o.note('size', os.fstat(f).st_size)
    o(fallocate, f, KEEP, 2 << 20, 4096)
    os.write(f, b'!')
    fcntl.fcntl(f, fcntl.F_SETFL, 0)
    os.pwrite(f, b'S', 0)
    o.note('size', (os.fstat(f).st_size, content(d('f'))))
    put(d('many'))
    pids = []
    for who in range(4):
        pids.append(os.fork())
        if pids[-1] == 0:
            h = os.open(d('many'), WR | AP)
            for i in range(200):
                os.write(h, b'%d-%05d' % (who, i) * 40 + b'\n')
            os._exit(0)
    for p in pids:
        os.waitpid(p, 0)
    lines = sorted(get(d('many')).split(b'\n'))
    o.note('each whole', (len(lines), len(set(lines)), digest(b''.join(lines))))
    os.truncate(d('many'), 0)


@case()
def synced(o, d):
    for flags in (os.O_SYNC, os.O_DSYNC, os.O_SYNC | os.O_DIRECT):
        f = o(os.open, d('s'), RW | CR | flags)
        o(os.pwrite, f, mmap.mmap(-1, 4096), 0)
        os.close(f)
    f = os.open(d('s'), RD)
    o(os.fsync, f)
    o(os.fdatasync, f)
    o(libc.syncfs, f)
    o(libc.sync_file_range, f, ctypes.c_long(0), ctypes.c_long(0), 7)
    o(os.fsync, os.open(d('s'), os.O_PATH))
    os.mkfifo(d('p'))
    o(os.fsync, os.open(d('p'), RW))


@case()
def locks(o, d):
    put(d('l'), b'x' * 100)
    who = USER if os.getuid() else ROOT
    EX, SH, NB, UN = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB, fcntl.LOCK_UN

    def other(fn, flags, *args):
        return in_child(who, lambda: fn(os.open(d('l'), RW), flags | NB, *args))

    f, g = os.open(d('l'), RW), os.open(d('l'), RD)
    for fn in (fcntl.flock, fcntl.lockf):
        o(fn, f, SH)
        o.note('shared', (other(fn, SH), other(fn, EX)))
        o(fn, f, EX)
        o.note('exclusive', (other(fn, SH), other(fn, EX)))
        o(fn, f, UN)
        o.note('free', other(fn, EX))
    o(fcntl.flock, g, EX)
    o.note('by another descriptor', o(fcntl.flock, f, EX | NB))
    o(fcntl.lockf, g, EX)  # needs write access
    os.close(g)
    o.note('closed', o(fcntl.flock, f, EX | NB))
    o(fcntl.lockf, f, EX, 10, 5)
    o.note('ranges', [other(fcntl.lockf, EX, n, at) for n, at in ((5, 0), (6, 0), (5, 14), (5, 15), (0, 0))])
    lk = struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 0, 0)
    me = os.getpid()
    o.note('getlk', in_child(who, lambda: [
        x == me if i == 4 else x for i, x in enumerate(struct.unpack('hhqqi', fcntl.fcntl(
            os.open(d('l'), RW), fcntl.F_GETLK, lk)[:28]))]))
    h = os.open(d('l'), RW)
    o(fcntl.fcntl, h, 37, lk)  # F_OFD_SETLK: the process's own lock is in the way
    os.close(h)  # takes the process's POSIX locks away
    o.note('closed', other(fcntl.lockf, EX))
    o(fcntl.fcntl, f, 37, lk)
    o.note('ofd', other(fcntl.lockf, EX))
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        k = os.open(d('l'), RW)
        os.write(w, b'x')
        fcntl.lockf(k, EX)  # waits
        os.pwrite(k, b'got it', 0)
        os._exit(0)
    os.read(r, 1)
    os.pwrite(f, b'first', 0)
    fcntl.fcntl(f, 37, struct.pack('hhqqi', fcntl.F_UNLCK, 0, 0, 0, 0))
    os.waitpid(pid, 0)
    o(os.pread, f, 6, 0)


@case()
def times(o, d):
    put(d('f'))
    os.mkdir(d('dir'))
    os.symlink('f', d('s'))
    NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2

    class Spec(ctypes.Structure):
        _fields_ = [('sec', ctypes.c_long), ('nsec', ctypes.c_long)]

    def utimens(path, a, m, flags=0):
        r = libc.utimensat(-100, path.encode(), (Spec * 2)(Spec(*a), Spec(*m)), flags)
        if r:
            raise OSError(ctypes.get_errno(), '')

    for name, flags in (('f', 0), ('dir', 0), ('s', 0x100), ('s', 0)):
        for a, m in (((1, 999999999), (2, 1)), ((0, OMIT), (3, 3)), ((4, 4), (0, OMIT)), ((0, OMIT), (0, OMIT)),
                     ((-5, 7), (-100000, 0)), ((1 << 32, 5), (1 << 33, 6)), ((1 << 40, 0), (-(1 << 40), 9)),
                     ((5, 1000000000), (5, 0)), ((5, 0), (5, -1))):
            o(utimens, d(name), a, m, flags)
            st = os.lstat(d(name))
            o.note('times', (st.st_atime_ns, st.st_mtime_ns))
    before = time.time() - 1
    o(utimens, d('f'), (0, NOW), (9, 9))
    st = os.stat(d('f'))
    o.note('now', (before < st.st_atime < before + 60, st.st_mtime_ns))
    o(utimens, d('f'), (9, 9), (0, NOW))
    st = os.stat(d('f'))
    o.note('now', (st.st_atime_ns, before < st.st_mtime < before + 60))
    o(os.utime, os.open(d('f'), RD), ns=(11, 12))
    o.note('fd', os.stat(d('f')).st_mtime_ns)
    os.chmod(d('f'), 0o666)
    os.chmod(d('dir'), 0o777)
    other = (1234, 1234, [])
    if os.getuid() == 0:
        for a, m in (((0, NOW), (0, NOW)), ((0, OMIT), (0, OMIT)), ((0, NOW), (0, OMIT)), ((1, 1), (1, 1))):
            o.note('other', in_child(other, lambda: utimens(d('f'), a, m)))
        os.chmod(d('f'), 0o644)
        o.note('other', in_child(other, lambda: utimens(d('f'), (0, NOW), (0, NOW))))


def stamps(d, names):
    out = {}
    for n in names:
        try:
            st = os.lstat(d(n))
            out[n] = (st.st_mtime_ns, st.st_ctime_ns)
        except OSError:
            out[n] = None
    return out


@case(USER)
def what_moves(o, d):
    """Which of mtime and ctime an operation moves, of the object and of the directories."""
    for n in ('a', 'b'):
        os.mkdir(d(n))
    put(d('a/f'), b'data')
    names = ('a', 'b', 'a/f', 'a/g', 'b/f', 'b/l', 'a/s')
    f = os.open(d('a/f'), RW)
    ops = (lambda: os.chmod(d('a/f'), 0o600), lambda: os.link(d('a/f'), d('b/l')), lambda: os.unlink(d('b/l')),
           lambda: os.write(f, b'x'), lambda: os.write(f, b''), lambda: os.ftruncate(f, 10),
           lambda: os.ftruncate(f, 10), lambda: os.truncate(d('a/f'), 10), lambda: os.truncate(d('a/f'), 3),
           lambda: os.rename(d('a/f'), d('a/g')), lambda: os.rename(d('a/g'), d('b/f')),
           lambda: os.rename(d('b/f'), d('a/f')), lambda: os.symlink('x', d('a/s')),
           lambda: os.unlink(d('a/s')), lambda: os.mkdir(d('a/g')), lambda: os.rmdir(d('a/g')),
           lambda: os.setxattr(f, 'user.x', b'1'), lambda: os.removexattr(f, 'user.x'),
           lambda: os.chown(d('a/f'), -1, os.getgid()), lambda: os.posix_fallocate(f, 0, 3),
           lambda: os.posix_fallocate(f, 0, 9000), lambda: fallocate(f, PUNCH | KEEP, 0, 4096),
           lambda: os.close(os.open(d('a/f'), WR | os.O_TRUNC)),
           lambda: os.close(os.open(d('a/f'), WR | os.O_TRUNC)), lambda: os.pread(f, 1, 0),
           lambda: os.mkdir(d('a')), lambda: os.fsync(f), lambda: os.utime(f, ns=(1, 1)),
           lambda: put(d('a/g')), lambda: os.rename(d('a/g'), d('a/f')))
    for i, op in enumerate(ops):
        time.sleep(0.012)  # more than a tick: what moves is seen to
        before = stamps(d, names)
        o(op)
        after = stamps(d, names)
        o.note(i, {n: 'came' if not before[n] else 'went' if not after[n] else
                   [x != y for x, y in zip(before[n], after[n])]
                   for n in names if before[n] != after[n]})


@case(USER)
def largest_file(o, d):
    """To the last byte that the disk's filesystem can number, and one more."""
    f = os.open(d('f'), RW | CR)
    low, high = 0, 1 << 62
    while low < high:  # what the size may be
        mid = (low + high + 1) // 2
        try:
            os.ftruncate(f, mid)
            low = mid
        except OSError:
            high = mid - 1
    o.note('limit', low)
    for at in (low - 1, low - 65537, low - 65536, (1 << 32) - 3, (1 << 43) + 5):
        o(os.pwrite, f, b'%d' % at, at)
        forget(f)
        o(os.pread, f, 20, at)
        o(os.pread, f, 20, at)
    o(os.pwrite, f, b'12345', low)
    o(os.pwrite, f, b'12345', low + 1)
    o(os.ftruncate, f, low + 1)
    o(os.pread, f, 5, low)
    o(fallocate, f, 0, low - 5, 10)
    os.fsync(f)
    o(os.lseek, f, 0, os.SEEK_DATA)
    o(os.lseek, f, (1 << 32), os.SEEK_DATA)
    o(os.lseek, f, 1 << 40, os.SEEK_HOLE)
    o(os.lseek, f, -1, os.SEEK_END)
    o.note('small', os.fstat(f).st_blocks < 400)
    os.close(f)
    os.truncate(d('f'), 100)
    o.note('content', content(d('f')))


