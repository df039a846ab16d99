# SPDX-License-Identifier: BSD-2-Clause
"""Cases of calls.py: names and data."""
import ctypes
import mmap
import os

from calls import attr, c_call, call, case, get, libc, note, put

# ---- names ----

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4


def rename2(old, new, flags):
    return libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags)


def link_fd(fd, path):
    return libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, os.fsencode(path), 0x400)


def make_kind(path, kind):
    if kind == 'file':
        put(path, b'f ' + os.fsencode(os.path.basename(path)))
    elif kind == 'dir':
        os.mkdir(path)
    elif kind == 'full':
        os.mkdir(path)
        put(path + '/in')
    elif kind == 'link':
        os.symlink('nowhere', path)
    elif kind == 'fifo':
        os.mkfifo(path)


@case
def rename_matrix(d):
    kinds = ['file', 'dir', 'full', 'link', 'fifo', 'none']
    for flags in (0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_NOREPLACE | RENAME_EXCHANGE):
        for a in kinds:
            for b in kinds:
                x, y = f'{d}/{flags}{a}{b}.x', f'{d}/{flags}{a}{b}.y'
                make_kind(x, a)
                make_kind(y, b)
                c_call(f'{a} to {b} flags {flags}', rename2, x, y, flags)
                for p in (x, y):
                    call('after', lambda p=p: oct(os.lstat(p).st_mode))


@case
def rename_onto_itself_and_below(d):
    put(d + '/a', b'a')
    os.link(d + '/a', d + '/b')
    call('hard links', os.rename, d + '/a', d + '/b')
    note('both stay', sorted(os.listdir(d)))
    call('itself', os.rename, d + '/a', d + '/a')
    os.makedirs(d + '/t/u')
    call('into itself', os.rename, d + '/t', d + '/t/u/v')
    call('onto parent', os.rename, d + '/t/u', d + '/t')
    call('dot', os.rename, d + '/t/.', d + '/w')
    call('slash', os.rename, d + '/a', d + '/t/')
    c_call('exchange across', rename2, d + '/a', d + '/t/u', RENAME_EXCHANGE)
    note('exchanged', (os.path.isdir(d + '/a'), get(d + '/t/u')))


@case
def names(d):
    for n in (b'\xff\xfe\x80', b' ', b'\n', b'a' * 255, b'-rf', b'.hidden', '\u00e9'.encode(), b'\x01'):
        p = os.fsencode(d) + b'/' + n
        call(f'create {n!r}', put, p, n)
        call('read', lambda p=p: get(p))
    note('listed', sorted(os.listdir(os.fsencode(d))))
    p = os.fsencode(d) + b'/'
    call('256 bytes', put, p + b'b' * 256)
    call('256 stat', os.stat, p + b'b' * 256)
    call('256 mkdir', os.mkdir, p + b'b' * 256)
    call('256 unlink', os.unlink, p + b'b' * 256)
    call('256 rename', os.rename, p + b' ', p + b'b' * 256)
    call('256 symlink', os.symlink, b'x', p + b'b' * 256)
    call('target 4095', os.symlink, b't' * 4095, p + b'long')
    call('target read', lambda: len(os.readlink(p + b'long')))
    call('target 4096', os.symlink, b't' * 4096, p + b'longer')
    call('target empty', os.symlink, b'', p + b'empty')


@case
def links(d):
    put(d + '/a', b'one')
    call('link', os.link, d + '/a', d + '/b')
    note('attr', (attr(d + '/a'), attr(d + '/b'), os.stat(d + '/a').st_ino == os.stat(d + '/b').st_ino))
    put(d + '/b', b'two')
    note('through the other', get(d + '/a'))
    os.unlink(d + '/a')
    note('nlink', os.stat(d + '/b').st_nlink)
    call('exists', os.link, d + '/b', d + '/b')
    os.mkdir(d + '/dir')
    call('a directory', os.link, d + '/dir', d + '/dir2')
    os.symlink('b', d + '/s')
    call('a symlink', os.link, d + '/s', d + '/s2', follow_symlinks=False)
    note('is one', os.readlink(d + '/s2'))
    os.mkfifo(d + '/p')
    call('a fifo', os.link, d + '/p', d + '/p2')
    note('fifo', attr(d + '/p2'))
    f = os.open(d + '/b', os.O_RDONLY)
    c_call('by descriptor', link_fd, f, d + '/c')
    os.unlink(d + '/b')
    os.unlink(d + '/c')
    note('gone but open', (os.fstat(f).st_nlink, os.read(f, 9)))
    c_call('from the dead', link_fd, f, d + '/e')
    os.close(f)


@case
def removal(d):
    os.mkdir(d + '/dir')
    put(d + '/dir/f')
    call('rmdir full', os.rmdir, d + '/dir')
    call('unlink dir', os.unlink, d + '/dir')
    call('rmdir file', os.rmdir, d + '/dir/f')
    f = os.open(d + '/dir', os.O_RDONLY | os.O_DIRECTORY)
    os.unlink(d + '/dir/f')
    call('rmdir open', os.rmdir, d + '/dir')
    call('list dead', os.listdir, f)
    call('create in dead', os.open, 'x', os.O_CREAT | os.O_RDWR, 0o644, dir_fd=f)
    call('stat dead', lambda: os.fstat(f).st_nlink)
    os.close(f)
    os.mkdir(d + '/cwd')
    os.chdir(d + '/cwd')
    os.rmdir(d + '/cwd')
    call('getcwd', os.getcwd)
    call('create', put, 'x')
    os.chdir('/')


@case
def tmpfile(d):
    try:
        f = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600)
        note('O_TMPFILE', 'ok')
    except OSError as e:
        note('O_TMPFILE', str(e))
        return
    os.write(f, b'temporary')
    note('nlink', os.fstat(f).st_nlink)
    c_call('link in', link_fd, f, d + '/now')
    note('content', get(d + '/now'))
    os.close(f)


# ---- data ----

FALLOC = {'keep': 1, 'punch': 3, 'collapse': 8, 'zero': 16, 'zero keep': 17, 'insert': 32, 'unshare': 64,
          'punch alone': 2, 'nothing': 0}


@case
def fallocate_modes(d):
    for n, mode in FALLOC.items():
        for off, length in ((0, 4096), (8192, 8192), (4096, 1 << 20), (100, 5000), (0, 0)):
            p = f'{d}/{n}-{off}-{length}'.replace(' ', '_')
            put(p, bytes(range(256)) * 256)
            f = os.open(p, os.O_RDWR)
            c_call(f'{n} {off} {length}', libc.fallocate, f, mode, ctypes.c_long(off), ctypes.c_long(length))
            st = os.fstat(f)
            note('after', (st.st_size, hash(os.pread(f, 4 << 20, 0).replace(b'', b'')), st.st_blocks))
            os.close(f)
    f = os.open(d + '/keep-0-4096', os.O_RDONLY)
    c_call('read-only descriptor', libc.fallocate, f, 0, ctypes.c_long(0), ctypes.c_long(100))
    os.close(f)


@case
def sparse(d):
    f = os.open(d + '/s', os.O_RDWR | os.O_CREAT)
    os.ftruncate(f, 100 << 20)
    os.pwrite(f, b'island', 40 << 20)
    os.fsync(f)
    note('size, blocks', (os.fstat(f).st_size, os.fstat(f).st_blocks))
    for whence in (os.SEEK_DATA, os.SEEK_HOLE):
        for at in (0, 40 << 20, (40 << 20) + 5000, 100 << 20, (100 << 20) - 1, 1 << 40):
            call(f'seek {whence} {at}', os.lseek, f, at, whence)
    note('bytes', (os.pread(f, 6, 40 << 20), os.pread(f, 10, (40 << 20) + 6)))
    os.ftruncate(f, 41 << 20)
    os.ftruncate(f, 60 << 20)
    note('tail', set(os.pread(f, 1 << 20, 41 << 20)))
    call('seek hole end', os.lseek, f, 41 << 20, os.SEEK_HOLE)
    os.close(f)


@case
def far_offsets(d):
    f = os.open(d + '/far', os.O_RDWR | os.O_CREAT)
    for at in (1 << 31, 1 << 32, (1 << 44) - 4096 - 1, (1 << 44) - 4096, 1 << 44, (1 << 62), (1 << 63) - 10):
        call(f'write at {at}', os.pwrite, f, b'0123456789', at)
        note('size', os.fstat(f).st_size)
        call('read', os.pread, f, 10, at)
        call(f'truncate {at}', os.ftruncate, f, at)
    call('truncate -1', os.ftruncate, f, -1)
    os.close(f)


@case
def open_flags(d):
    p = d + '/f'
    put(p, b'0123456789')
    for label, flags in (('wronly trunc', os.O_WRONLY | os.O_TRUNC), ('rdonly trunc', os.O_RDONLY | os.O_TRUNC),
                         ('excl', os.O_CREAT | os.O_EXCL | os.O_RDWR), ('directory', os.O_DIRECTORY),
                         ('path', os.O_PATH), ('nofollow', os.O_NOFOLLOW), ('noatime', os.O_NOATIME),
                         ('sync', os.O_RDWR | os.O_SYNC), ('dsync', os.O_RDWR | os.O_DSYNC),
                         ('direct', os.O_RDWR | os.O_DIRECT), ('creat dir', os.O_CREAT | os.O_RDWR | os.O_DIRECTORY)):
        put(p, b'0123456789')
        f = call(label, lambda: os.open(p, flags, 0o644) and 'opened')
        note('size', os.path.getsize(p))
        del f
    call('dir for writing', os.open, d, os.O_RDWR)
    call('dir creat', os.open, d, os.O_CREAT | os.O_RDONLY)
    os.symlink('f', d + '/l')
    call('nofollow link', os.open, d + '/l', os.O_NOFOLLOW)
    os.symlink('missing', d + '/dangling')
    call('creat through link', lambda: os.close(os.open(d + '/dangling', os.O_CREAT | os.O_WRONLY, 0o644)))
    call('made', os.path.exists, d + '/missing')
    call('excl through link', os.open, d + '/dangling', os.O_CREAT | os.O_EXCL | os.O_WRONLY)


@case
def direct_io(d):
    p = d + '/direct'
    f = os.open(p, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    buf = mmap.mmap(-1, 65536)
    buf[:] = b'd' * 65536
    call('write', os.pwritev, f, [buf], 0)
    g = os.open(p, os.O_RDWR)
    os.pwrite(g, b'buffered', 4096)
    call('read', os.preadv, f, [buf], 0)
    note('sees', buf[4090:4110])
    buf[:] = b'e' * 65536
    call('write again', os.pwritev, f, [buf], 65536)
    note('buffered sees', os.pread(g, 4, 65536))
    os.close(f)
    os.close(g)


@case
def appends(d):
    p = d + '/log'
    a, b = (os.open(p, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for _ in range(2))
    for i in range(50):
        os.write(a if i % 2 else b, b'%03d\n' % i)
    note('in order', get(p) == b''.join(b'%03d\n' % i for i in range(50)))
    call('pwrite appends', os.pwrite, a, b'end', 0)
    note('content', get(p)[-7:])
    os.ftruncate(a, 8)
    os.write(b, b'more')
    note('after truncate', get(p))
    os.close(a)
    os.close(b)


@case
def mappings(d):
    p = d + '/map'
    put(p, b'.' * 10000)
    f = os.open(p, os.O_RDWR)
    shared, private = mmap.mmap(f, 10000), mmap.mmap(f, 10000, mmap.MAP_PRIVATE)
    shared[5000:5006] = b'shared'
    private[6000:6007] = b'private'
    note('pread', os.pread(f, 1007, 5000))
    os.pwrite(f, b'written', 5500)
    note('map sees', (shared[5500:5507], private[5500:5507]))
    shared.flush()
    os.ftruncate(f, 5503)
    os.ftruncate(f, 10000)
    note('cut', (os.pread(f, 10, 5500), shared[5500:5510]))
    shared.close()
    private.close()
    os.close(f)
    note('kept', get(p)[5000:5010])


@case
def copies(d):
    put(d + '/from', bytes(range(256)) * 1000)
    f = os.open(d + '/from', os.O_RDONLY)
    t = os.open(d + '/to', os.O_RDWR | os.O_CREAT)
    call('whole', os.copy_file_range, f, t, 256000)
    note('same', get(d + '/to') == get(d + '/from'))
    call('tail', os.copy_file_range, f, t, 4096, 255000, 10)
    note('at 10', os.pread(t, 1010, 5) == (bytes(range(256)) * 4)[5:10] + (bytes(range(256)) * 1000)[255000:] +
         (bytes(range(256)) * 8)[1010:1015])
    call('past the end', os.copy_file_range, f, t, 10, 300000, 0)
    call('within, apart', os.copy_file_range, t, t, 1000, 0, 100000)
    call('overlapping', os.copy_file_range, t, t, 1000, 0, 500)
    call('to read-only', os.copy_file_range, t, f, 10)
    call('sendfile', os.sendfile, t, f, 0, 5000)
    os.close(f)
    os.close(t)


@case
def odd_reads(d):
    p = d + '/r'
    put(p, b'0123456789')
    f = os.open(p, os.O_RDONLY)
    call('at end', os.pread, f, 10, 10)
    call('past end', os.pread, f, 10, 1000)
    call('over end', os.pread, f, 100, 5)
    call('none', os.pread, f, 0, 0)
    call('write to it', os.write, f, b'x')
    g = os.open(p, os.O_WRONLY)
    call('read of it', os.read, g, 1)
    call('a directory', lambda: os.read(os.open(d, os.O_RDONLY), 1))
    call('advise', os.posix_fadvise, f, 0, 0, os.POSIX_FADV_DONTNEED)
    call('readahead', libc.readahead, f, ctypes.c_long(0), 4096)
    call('sync range', libc.sync_file_range, g, ctypes.c_long(0), ctypes.c_long(0), 7)
    call('fsync read-only', os.fsync, f)
    call('fdatasync', os.fdatasync, g)
    call('fsync directory', lambda: os.fsync(os.open(d, os.O_RDONLY)))
