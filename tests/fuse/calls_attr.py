# SPDX-License-Identifier: BSD-2-Clause
"""Cases of calls.py: attributes, permissions, special files, ioctls, locks, directories."""
import array
import ctypes
import fcntl
import os
import socket
import stat
import struct

from calls import as_user, attr, c_call, call, case, get, libc, note, put

# ---- attributes ----

@case
def times(d):
    p = d + '/t'
    put(p)
    NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2

    def utimens(path, a, m, flags=0):
        spec = struct.pack('qqqq', *a, *m)
        return libc.utimensat(-100, os.fsencode(path), spec, flags)
    c_call('set', utimens, p, (1000, 123456789), (2000, 987654321))
    note('ns', (os.stat(p).st_atime_ns, os.stat(p).st_mtime_ns))
    c_call('omit', utimens, p, (0, OMIT), (3000, 1))
    note('omit', (os.stat(p).st_atime_ns, os.stat(p).st_mtime_ns))
    c_call('now', utimens, p, (0, NOW), (0, OMIT))
    note('now', (os.stat(p).st_atime_ns > 10**18, os.stat(p).st_mtime_ns))
    c_call('both omit', utimens, p, (0, OMIT), (0, OMIT))
    c_call('bad ns', utimens, p, (0, 10**9), (0, 0))
    for sec in (-1, -2**31, 2**31, 2**32, 2**33, 2**34 - 2):
        c_call(f'second {sec}', utimens, p, (sec, 5), (sec, 7))
        note('is', (os.stat(p).st_atime_ns, os.stat(p).st_mtime_ns))
    os.symlink('t', d + '/l')
    c_call('link', utimens, d + '/l', (5, 6), (7, 8), 0x100)
    note('link', (os.lstat(d + '/l').st_mtime_ns, os.stat(p).st_mtime_ns))
    f = os.open(p, os.O_WRONLY)
    os.write(f, b'more')
    os.utime(f, ns=(11, 12))
    os.close(f)
    note('kept over close', os.stat(p).st_mtime_ns)
    before = os.stat(p).st_ctime_ns
    os.chmod(p, 0o600)
    note('chmod', (os.stat(p).st_mtime_ns, os.stat(p).st_ctime_ns >= before))

    def not_owner():
        c_call('user sets', utimens, p, (1, 1), (1, 1))
        c_call('user now', utimens, p, (0, NOW), (0, NOW))
    os.chmod(d, 0o755)
    os.chmod(p, 0o666)
    as_user(not_owner)


@case
def modes(d):
    os.chmod(d, 0o777)
    p = d + '/m'
    for mode in (0, 0o4755, 0o2755, 0o1777, 0o6777, 0o2644, 0o4644):
        put(p)
        call(f'chmod {oct(mode)}', os.chmod, p, mode)
        note('mode', attr(p))

        def write():
            call('user writes', put, p, b'by user')
        as_user(write)
        note('after write', attr(p))
        os.chmod(p, mode)
        call('root truncates', os.truncate, p, 3)
        note('after truncate', attr(p))
        os.chmod(p, mode)
        call('chown', os.chown, p, 55, 66)
        note('after chown', attr(p))
        call('chown -1', os.chown, p, -1, -1)
        note('after chown -1', attr(p))
        os.unlink(p)


@case
def set_ids_by_users(d):
    os.chmod(d, 0o777)
    p = d + '/own'

    def user():
        put(p)
        call('setgid foreign group', os.chmod, p, 0o2755)
        note('mode', attr(p))
        call('chgrp to own', os.chown, p, -1, 777)
        call('setgid own group', os.chmod, p, 0o2755)
        note('mode', attr(p))
        call('write keeps?', put, p, b'again')
        note('mode', attr(p))
        call('chgrp foreign', os.chown, p, -1, 999)
        call('give away', os.chown, p, 1, -1)
        os.chmod(p, 0o6777)
        f = os.open(p, os.O_RDWR)
        os.pwrite(f, b'x', 0)
        note('by owner', attr(p))
        os.chmod(p, 0o6777)
        c_call('fallocate', libc.fallocate, f, 0, ctypes.c_long(0), ctypes.c_long(5000))
        note('by fallocate', attr(p))
        os.chmod(p, 0o6777)
        os.ftruncate(f, 1)
        note('by truncate', attr(p))
    as_user(user, groups=(777,))


@case
def setgid_directories(d):
    os.mkdir(d + '/g')
    os.chown(d + '/g', 10, 20)
    os.chmod(d + '/g', 0o2777)

    def user():
        put(d + '/g/f', mode=0o2664)
        os.mkdir(d + '/g/d')
        os.mkfifo(d + '/g/p')
        os.symlink('x', d + '/g/s')
        for n in 'fdps':
            note(n, attr(f'{d}/g/{n}')[:4] if n != 's' else attr(f'{d}/g/{n}')[2:4])
    os.chmod(d, 0o755)
    as_user(user)


@case
def sticky(d):
    os.mkdir(d + '/s')
    os.chmod(d + '/s', 0o1777)
    os.chmod(d, 0o755)
    put(d + '/s/roots')
    os.chmod(d + '/s/roots', 0o666)

    def other():
        put(d + '/s/mine')
        call('unlink', os.unlink, d + '/s/roots')
        call('rename', os.rename, d + '/s/roots', d + '/s/x')
        call('over', os.rename, d + '/s/mine', d + '/s/roots')
        call('own', os.unlink, d + '/s/mine')
    as_user(other)


@case
def permissions(d):
    os.chmod(d, 0o755)
    for mode in (0, 0o400, 0o200, 0o100, 0o040, 0o020, 0o010, 0o004, 0o002, 0o001, 0o777):
        p, q = f'{d}/f{mode}', f'{d}/d{mode}'
        put(p, b'#!/bin/sh\nexit 0\n')
        os.mkdir(q)
        put(q + '/in')
        for x in (p, q):
            os.chown(x, 1000, 2000)
            os.chmod(x, mode)
        for uid, gid, groups in ((1000, 1, ()), (1, 2000, ()), (1, 1, (2000,)), (1, 1, ())):
            def user():
                for a in (os.R_OK, os.W_OK, os.X_OK):
                    note('access', (os.access(p, a), os.access(q, a)))
                call('read', lambda: os.close(os.open(p, os.O_RDONLY)))
                call('write', lambda: os.close(os.open(p, os.O_WRONLY)))
                call('append', lambda: os.close(os.open(p, os.O_WRONLY | os.O_APPEND)))
                call('truncate', os.truncate, p, 17)
                call('list', os.listdir, q)
                call('enter', os.stat, q + '/in')
                call('create', lambda: os.close(os.open(q + '/new', os.O_CREAT | os.O_WRONLY)))
                call('unlink', os.unlink, q + '/new')
                call('chmod', os.chmod, p, mode)
                call('xattr', os.setxattr, p, 'user.x', b'1')
                call('getxattr', os.getxattr, p, 'user.x')
            as_user(user, uid, gid, groups)


@case
def umasks(d):
    os.chmod(d, 0o777)
    for mask in (0, 0o022, 0o077, 0o777):
        def user():
            os.close(os.open(f'{d}/f{mask}', os.O_CREAT | os.O_WRONLY, 0o7777))
            os.mkdir(f'{d}/d{mask}', 0o7777)
            os.mknod(f'{d}/n{mask}', 0o666 | stat.S_IFREG)
            os.mkfifo(f'{d}/p{mask}', 0o666)
            for n in 'fdnp':
                note(n, attr(f'{d}/{n}{mask}'))
        as_user(user, umask=mask)


@case
def special_files(d):
    os.chmod(d, 0o777)
    call('fifo', os.mkfifo, d + '/p', 0o640)
    call('null', os.mknod, d + '/null', 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    call('block', os.mknod, d + '/blk', 0o600 | stat.S_IFBLK, os.makedev(7, 200))
    call('socket node', os.mknod, d + '/sn', 0o600 | stat.S_IFSOCK)
    call('big numbers', os.mknod, d + '/big', 0o600 | stat.S_IFCHR, os.makedev(4000, 1000000))
    call('dir by mknod', os.mknod, d + '/dir', 0o600 | stat.S_IFDIR)
    for n in ('p', 'null', 'blk', 'sn', 'big'):
        call(n, lambda n=n: attr(f'{d}/{n}'))
    call('read null', lambda: open(d + '/null', 'rb').read())
    r = os.open(d + '/p', os.O_RDONLY | os.O_NONBLOCK)
    w = os.open(d + '/p', os.O_WRONLY)
    os.write(w, b'through')
    note('fifo works', os.read(r, 10))
    s = socket.socket(socket.AF_UNIX)
    os.chdir(d)
    call('bind', s.bind, 'sock')
    s.listen()
    c = socket.socket(socket.AF_UNIX)
    call('connect', c.connect, 'sock')
    note('socket', attr('sock')[0])
    os.chdir('/')

    def user():
        call('user device', os.mknod, d + '/un', 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        call('user fifo', os.mkfifo, d + '/up')
    as_user(user)


@case
def extended_attributes(d):
    p = d + '/x'
    put(p)
    os.mkdir(d + '/dir')
    os.symlink('x', d + '/l')
    for t in (p, d + '/dir', d + '/l'):
        for ns in ('user.a', 'trusted.a', 'security.a', 'system.a', 'nonsense.a', 'user.', 'user', ''):
            call(f'set {ns}', os.setxattr, t, ns, b'value', follow_symlinks=False)
            call('get', os.getxattr, t, ns, follow_symlinks=False)
        call('list', lambda t=t: sorted(os.listxattr(t, follow_symlinks=False)))
    call('create there', os.setxattr, p, 'user.a', b'2', os.XATTR_CREATE)
    call('replace missing', os.setxattr, p, 'user.z', b'2', os.XATTR_REPLACE)
    call('replace', os.setxattr, p, 'user.a', b'', os.XATTR_REPLACE)
    call('empty', os.getxattr, p, 'user.a')
    call('name 255', os.setxattr, p, 'user.' + 'n' * 250, b'1')
    call('name 256', os.setxattr, p, 'user.' + 'n' * 251, b'1')
    call('value 65536', os.setxattr, p, 'user.big', b'v' * 65536)
    call('value 65537', os.setxattr, p, 'user.big', b'v' * 65537)
    call('value 3000', os.setxattr, p, 'user.big', b'v' * 3000)
    call('short buffer', lambda: libc.getxattr(os.fsencode(p), b'user.big', ctypes.create_string_buffer(10), 10))
    call('remove', os.removexattr, p, 'user.a')
    call('remove again', os.removexattr, p, 'user.a')
    call('capability', os.setxattr, p, 'security.capability', struct.pack('<IIIII', 0x2000000, 1, 0, 0, 0))
    os.write(os.open(p, os.O_WRONLY), b'kills it')
    call('capability after write', os.getxattr, p, 'security.capability')


@case
def statistics(d):
    v = os.statvfs(d)
    note('statvfs', (v.f_bsize, v.f_frsize, v.f_blocks, v.f_files, v.f_namemax))
    note('flags', v.f_flag & (os.ST_RDONLY | os.ST_NOSUID))


FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
FS_IOC_FSGETXATTR, FS_IOC_GETVERSION, FIGETBSZ = 0x801c581f, 0x80087601, 2
FICLONE, FS_IOC_FIEMAP, FIONREAD, BLKGETSIZE64 = 0x40049409, 0xc020660b, 0x541b, 0x80081272


@case
def flag_ioctls(d):
    p = d + '/i'
    put(p, b'12345')
    f = os.open(p, os.O_RDWR)
    for label, flag in (('nodump', 0x40), ('append', 0x20), ('immutable', 0x10), ('noatime', 0x80)):
        buf = array.array('L', [0])
        call('get', lambda: fcntl.ioctl(f, FS_IOC_GETFLAGS, buf, True))
        old = buf[0]
        buf[0] |= flag
        call(f'set {label}', lambda: fcntl.ioctl(f, FS_IOC_SETFLAGS, buf, True))
        call('get again', lambda: fcntl.ioctl(f, FS_IOC_GETFLAGS, buf, True))
        note('flags', hex(buf[0] ^ old))
        call('truncating open', lambda: os.close(os.open(p, os.O_WRONLY | os.O_TRUNC)))
        call('appending open', lambda: os.close(os.open(p, os.O_WRONLY | os.O_APPEND)))
        call('unlink', lambda: os.link(p, p + label))
        call('chmod', os.chmod, p, 0o640)
        buf[0] = old
        call('reset', lambda: fcntl.ioctl(f, FS_IOC_SETFLAGS, buf, True))
        note('content', get(p))
        if label in ('append', 'immutable'):
            buf[0] |= flag
            fcntl.ioctl(f, FS_IOC_SETFLAGS, buf, True)
            call('write', os.pwrite, f, b'!', 0)
            buf[0] = old
            fcntl.ioctl(f, FS_IOC_SETFLAGS, buf, True)
    x = bytearray(28)
    call('fsgetxattr', lambda: fcntl.ioctl(f, FS_IOC_FSGETXATTR, x, True))
    g = os.open(d, os.O_RDONLY)
    buf = array.array('L', [0])
    call('directory', lambda: fcntl.ioctl(g, FS_IOC_GETFLAGS, buf, True))
    call('readable', lambda: fcntl.ioctl(f, FIONREAD, buf, True))
    call('block size', lambda: fcntl.ioctl(f, FIGETBSZ, buf, True))
    call('unknown', lambda: fcntl.ioctl(f, 0x12345678, buf, True))
    call('not a device', lambda: fcntl.ioctl(f, BLKGETSIZE64, buf, True))
    os.chmod(d, 0o777)
    os.chmod(p, 0o666)

    def user():
        put(d + '/own')
        for path in (p, d + '/own'):
            h = os.open(path, os.O_RDONLY)
            for flag in (0x40, 0x20, 0x10, 0):
                flags = array.array('L', [flag | 0x80000])  # ext4's extents
                call('user sets', lambda: fcntl.ioctl(h, FS_IOC_SETFLAGS, flags, True))
    as_user(user)


# ---- locks ----

@case
def locks(d):
    p = d + '/lock'
    put(p, b'x' * 100)
    a, b = os.open(p, os.O_RDWR), os.open(p, os.O_RDWR)
    fcntl.flock(a, fcntl.LOCK_EX)
    call('flock held', fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(a, fcntl.LOCK_UN)
    call('flock free', fcntl.flock, b, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.lockf(a, fcntl.LOCK_EX, 10, 0)

    def other():
        f = os.open(p, os.O_RDWR)
        call('overlapping', fcntl.lockf, f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
        call('apart', fcntl.lockf, f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
        who = fcntl.fcntl(f, fcntl.F_GETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 10, 0))
        note('holder', struct.unpack('hhqqi4x', who)[:4])
    os.chmod(d, 0o755)
    os.chmod(p, 0o666)
    as_user(other)
    OFD_SETLK = 37
    call('ofd', lambda: fcntl.fcntl(a, OFD_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 50, 10, 0)) and 'ok')
    call('ofd other', lambda: fcntl.fcntl(b, OFD_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 50, 10, 0)) and 'ok')
    call('lease', fcntl.fcntl, a, fcntl.F_SETLEASE, fcntl.F_UNLCK)


# ---- directories ----

@case
def seeking_directories(d):
    """Positions stay good while entries come and go."""
    libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
    libc.telldir.restype = ctypes.c_long
    for fn in (libc.readdir, libc.telldir, libc.closedir, libc.rewinddir):
        fn.argtypes = [ctypes.c_void_p]
    libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]

    def entry(dp):
        e = libc.readdir(dp)
        return ctypes.string_at(e + 19) if e else None
    for i in range(3000):
        put(f'{d}/e{i:05d}')
    dp = libc.opendir(os.fsencode(d))
    places = []
    while True:
        at = libc.telldir(dp)
        n = entry(dp)
        if n is None:
            break
        places.append((at, n))
    note('all once', (len(places), len({n for _, n in places}), len({a for a, _ in places})))
    for i in range(0, 3000, 3):
        os.unlink(f'{d}/e{i:05d}')
    for i in range(500):
        put(f'{d}/new{i}')
    wrong = 0
    for at, n in places[::7]:
        if n in (b'.', b'..') or int(n[1:]) % 3 == 0:
            continue
        libc.seekdir(dp, at)
        wrong += entry(dp) != n
    note('wrong after seek', wrong)
    libc.rewinddir(dp)
    seen = []
    while True:
        n = entry(dp)
        if n is None:
            break
        seen.append(n)
    note('after rewind', (len(seen), len(set(seen))))
    libc.closedir(dp)


@case
def removing_while_listing(d):
    for i in range(2000):
        put(f'{d}/f{i}')
    with os.scandir(d) as it:
        for e in it:
            os.unlink(e.path)
    note('left', os.listdir(d))


@case
def inode_numbers(d):
    seen = set()
    for i in range(500):
        put(f'{d}/f{i}')
        seen.add(os.stat(f'{d}/f{i}').st_ino)
    note('unique', len(seen))
    note('in listings', all(e.inode() == e.stat().st_ino for e in os.scandir(d)))
    a = os.stat(d + '/f1').st_ino
    os.rename(d + '/f1', d + '/g1')
    note('over rename', os.stat(d + '/g1').st_ino == a)
    f = os.open(d + '/f2', os.O_RDONLY)
    os.unlink(d + '/f2')
    put(d + '/f2')
    note('open and dead', os.fstat(f).st_ino != os.stat(d + '/f2').st_ino)
    st = os.stat(d)
    note('one device', all(os.stat(e.path).st_dev == st.st_dev for e in os.scandir(d)))
