# SPDX-License-Identifier: BSD-2-Clause
"""Cases of operations.py: names, directories, kinds of files, what stays of what was removed."""
import ctypes, os, random
from operations import ROOT, USER, call, case, content, get, libc, mode_of, put, rename2

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
RD, WR, RW, CR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_CREAT


def link_fd(fd, path):
    return call(libc.linkat, -100, '/proc/self/fd/%d' % fd, -100, path, 0x400)


@case(ROOT)
def whiteout(o, d):
    put(d('a'), b'a')
    put(d('b'), b'b')
    o(rename2, d('a'), d('c'), WHITEOUT)
    o(rename2, d('c'), d('b'), WHITEOUT)
    o(rename2, d('b'), d('c'), WHITEOUT | NOREPLACE)
    for n in 'abc':
        o.note(n, (mode_of(d(n)), os.lstat(d(n)).st_rdev))


@case()
def tmpfile(o, d):
    f = o(os.open, d('.'), os.O_TMPFILE | RW, 0o666)
    o.note('stat', (oct(os.fstat(f).st_mode), os.fstat(f).st_nlink, os.fstat(f).st_uid))
    o(os.write, f, b'x' * 100000)
    o(os.ftruncate, f, 50000)
    o(os.pread, f, 3, 49999)
    o.note('no name', os.listdir(d('.')))
    o(link_fd, f, d('named'))
    o.note('named', (content(d('named')), os.fstat(f).st_nlink))
    o(os.write, f, b'more')
    o(os.unlink, d('named'))
    o(os.pread, f, 2, 0)
    g = o(os.open, d('.'), os.O_TMPFILE | os.O_EXCL | WR, 0o600)
    o(os.write, g, b'x')
    o(link_fd, g, d('never'))
    o(os.open, d('.'), os.O_TMPFILE | RD)
    o(os.open, d('none'), os.O_TMPFILE | RW)
    put(d('file'))
    o(os.open, d('file'), os.O_TMPFILE | RW)
    os.mkdir(d('ro'), 0o555)
    o(os.open, d('ro'), os.O_TMPFILE | RW, 0o600)
    for i in range(300):  # each keeps nothing behind once it has a name
        h = os.open(d('.'), os.O_TMPFILE | WR, 0o640)
        os.write(h, b'%d' % i)
        link_fd(h, d('t%d' % i))
        os.close(h)
    o.note('all', (get(d('t299')), mode_of(d('t0'))))


@case()
def removed_but_open(o, d):
    f = os.open(d('f'), RW | CR, 0o644)
    os.write(f, b'abc' * 50000)
    g = os.open(d('f'), RD)
    o(os.unlink, d('f'))
    o(os.open, d('f'), RD)
    put(d('f'), b'another')
    o(os.pread, g, 3, 149999 - 2)
    o(os.pwrite, f, b'XYZ', 70000)
    o(os.posix_fadvise, f, 0, 0, os.POSIX_FADV_DONTNEED)
    o(os.pread, g, 3, 70000)
    o(os.ftruncate, f, 70002)
    o(os.pread, g, 9, 70000)
    o(os.fchmod, f, 0o4711)
    o(os.fchown, f, -1, -1)
    o(os.utime, f, ns=(1, 2))
    o(os.setxattr, f, 'user.x', b'v')
    o(os.getxattr, f, 'user.x')
    o(os.posix_fallocate, f, 0, 200000)
    st = os.fstat(f)
    o.note('stat', (st.st_nlink, st.st_size, oct(st.st_mode)))
    h = os.open(d('copy'), WR | CR)
    o(os.copy_file_range, g, h, 70002, 0, 0)
    o(os.fsync, f)
    os.rename(d('copy'), d('f'))  # over a file that is open as well
    o.note('copy', content(d('f')))
    os.mkdir(d('dir'))
    x = os.open(d('dir'), RD)
    o(os.rmdir, d('dir'))
    o(os.listdir, x)
    o(os.open, 'new', CR | WR, dir_fd=x)
    o(os.mkdir, 'new', dir_fd=x)
    o(os.fchmod, x, 0o700)
    o(os.fsync, x)
    o.note('dir', (os.fstat(x).st_nlink, oct(os.fstat(x).st_mode)))
    os.mkdir(d('cwd'))
    os.chdir(d('cwd'))
    os.rmdir(d('cwd'))
    o(os.getcwd)
    o(os.open, 'x', CR | WR)
    o(os.listdir, '..')


@case()
def replaced_but_open(o, d):
    for n in 'abc':
        put(d(n), n.encode() * 9000)
    fds = [os.open(d(n), RW) for n in 'abc']
    o(os.rename, d('a'), d('b'))
    o(rename2, d('b'), d('c'), EXCHANGE)
    o(os.rename, d('b'), d('c'))
    for f in fds:
        o(os.pread, f, 2, 8998)
        o(os.pwrite, f, b'!', 0)
        o.note('nlink', os.fstat(f).st_nlink)
    o.note('left', [(n, content(d(n))) for n in sorted(os.listdir(d('.')))])
    os.mkdir(d('x'))
    os.mkdir(d('y'))
    x, y = os.open(d('x'), RD), os.open(d('y'), RD)
    o(os.rename, d('x'), d('y'))
    o(os.mkdir, 'below', dir_fd=y)
    o(os.mkdir, 'below', dir_fd=x)
    o.note('dirs', (os.fstat(x).st_nlink, os.fstat(y).st_nlink, os.listdir(d('y'))))


class Dirent(ctypes.Structure):
    _fields_ = [('ino', ctypes.c_uint64), ('off', ctypes.c_int64), ('reclen', ctypes.c_uint16),
                ('type', ctypes.c_uint8), ('name', ctypes.c_char * 256)]


libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.telldir.restype = ctypes.c_long
for f in (libc.readdir, libc.telldir, libc.rewinddir, libc.closedir):
    f.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


def entries(stream):
    while True:
        e = libc.readdir(stream)
        if not e:
            return
        if e[0].name not in (b'.', b'..'):
            yield e[0].name.decode(), e[0].ino, e[0].type


@case(USER)
def big_directory(o, d):
    """Entries come and go while it is read: what stays is listed exactly once, and a position
    leads to the same entry. The order is the disk's own, so only what holds for any order counts."""
    count = int(os.environ.get('OPERATIONS_ENTRIES', 4000))
    os.mkdir(d('big'))
    for i in range(count):
        os.close(os.open(d('big/stay%d' % i), CR | WR))
        if i % 4 == 0:
            os.close(os.open(d('big/go%d' % i), CR | WR))
    s = libc.opendir(d('big').encode())
    seen, places, gone = [], [], iter(range(0, count, 4))
    for n, (name, _, kind) in enumerate(entries(s)):
        seen.append(name)
        assert kind == 8, kind
        if n % 100 == 0:
            places.append(libc.telldir(s))
            g = next(gone, None)
            if g is not None:
                os.unlink(d('big/go%d' % g))
                os.close(os.open(d('big/come%d' % g), CR | WR))
    stay = [n for n in seen if n.startswith('stay')]
    o.note('each once', (len(stay), len(set(stay)), len(seen) == len(set(seen))))
    random.Random(1).shuffle(places)
    follows = {}
    for again in range(2):
        for p in places:
            libc.seekdir(s, p)
            follows.setdefault(p, []).append(next((n for n, _, _ in entries(s) if n.startswith('stay')), ''))
    o.note('the same place', all(a == b for a, b in follows.values()))
    libc.rewinddir(s)
    put(d('big/late'))
    libc.rewinddir(s)
    o.note('rewound', 'late' in {n for n, _, _ in entries(s)})
    libc.closedir(s)
    for n in os.listdir(d('big')):
        os.unlink(d('big/' + n))
    o(os.rmdir, d('big'))


