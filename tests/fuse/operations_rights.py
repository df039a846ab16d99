# SPDX-License-Identifier: BSD-2-Clause
"""Cases of operations.py: who may do what, set-id bits, attributes, ACLs, flags."""
import array, fcntl, os, stat, struct, subprocess
from operations import (ACL, ROOT, USER, attributes, call, case, errno, fallocate, get, ids, in_child,
                        libc, mode_of, put)

RD, WR, RW, CR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_CREAT
OWNER, MEMBER, OTHER = (1001, 1001, []), (1002, 1002, [2000]), (1003, 1003, [3000])


def tries(fns):
    """Each of them: ok or the errno."""
    out = []
    for fn in fns:
        try:
            fn()
            out.append('ok')
        except OSError as e:
            out.append(errno.errorcode[e.errno])
    return out


@case(ROOT)
def permissions(o, d):
    os.chmod(d('.'), 0o777)
    put(d('f'), b'#!/bin/sh\nexit 0\n')
    os.mkdir(d('dir'))
    put(d('dir/x'), b'x')
    for n in ('f', 'dir'):
        os.chown(d(n), OWNER[0], 2000)

    def file_ops():
        return tries([lambda: os.open(d('f'), RD), lambda: os.open(d('f'), WR), lambda: os.open(d('f'), RW),
                      lambda: os.truncate(d('f'), 17), lambda: os.setxattr(d('f'), 'user.a', b''), lambda: os.utime(d('f'))]) + [
                          os.access(d('f'), m) for m in (os.R_OK, os.W_OK, os.X_OK, os.F_OK)] + [os.system(d('f') + ' 2>/dev/null')]

    def dir_ops():
        return tries([lambda: os.listdir(d('dir')), lambda: os.stat(d('dir/x')), lambda: os.stat(d('dir/none')),
                      lambda: os.close(os.open(d('dir/n'), CR | WR)), lambda: os.unlink(d('dir/n')),
                      lambda: os.mkdir(d('dir/m')), lambda: os.rename(d('dir/m'), d('dir/k')),
                      lambda: os.rmdir(d('dir/k')), lambda: os.link(d('dir/x'), d('dir/l')),
                      lambda: os.unlink(d('dir/l')), lambda: os.chdir(d('dir'))])

    for who, its in ((OWNER, 6), (MEMBER, 3), (OTHER, 0)):
        for shift in (6, 3, 0):
            for bits in range(8) if shift == its else (0, 7):
                os.chmod(d('f'), bits << shift)
                os.chmod(d('dir'), bits << shift)
                o.note((who[0], oct(bits << shift)), (in_child(who, file_ops), in_child(who, dir_ops)))
    os.chmod(d('f'), 0o644)
    os.chmod(d('dir'), 0o755)

    def change():
        return tries([lambda: os.chmod(d('f'), 0o644), lambda: os.chown(d('f'), -1, 2000),
                      lambda: os.chown(d('f'), -1, 3000), lambda: os.chown(d('f'), os.getuid(), -1),
                      lambda: os.chown(d('f'), 1003, -1), lambda: os.utime(d('f'), ns=(1, 1)),
                      lambda: os.open(d('f'), RD | os.O_NOATIME)])

    for who in (OWNER, (1001, 1001, [2000]), (1001, 1001, [3000]), MEMBER, OTHER):
        o.note(who, in_child(who, change))
        o.note('is', (ids(d('f')), mode_of(d('f'))))
        os.chown(d('f'), OWNER[0], 2000)


@case(ROOT)
def sticky(o, d):
    for name, mode in (('sticky', 0o1777), ('plain', 0o777)):
        os.mkdir(d(name))
        os.chmod(d(name), mode)
        os.chown(d(name), 1001, 1001)
        for i, who in enumerate((OWNER, MEMBER, OTHER)):
            for kind in 'abcd':
                put(d('%s/%s%d' % (name, kind, i)))
                os.chown(d('%s/%s%d' % (name, kind, i)), who[0], who[1])
            os.mkdir(d('%s/dir%d' % (name, i)))
            os.chown(d('%s/dir%d' % (name, i)), who[0], who[1])
        for who in (OWNER, MEMBER, OTHER):
            o.note((name, who[0]), in_child(who, lambda: tries(
                [lambda i=i: os.unlink(d('%s/a%d' % (name, i))) for i in range(3)] +
                [lambda i=i: os.rename(d('%s/b%d' % (name, i)), d('%s/z%d%d' % (name, i, os.getuid())))
                 for i in range(3)] +
                [lambda i=i: os.rename(d('%s/c2' % name), d('%s/d%d' % (name, i))) for i in range(3)] +
                [lambda i=i: os.rmdir(d('%s/dir%d' % (name, i))) for i in range(3)])))


@case(ROOT)
def set_id_bits(o, d):
    """Who changes a file takes its set-id bits away, unless privileged. (A set-gid bit without the
    group's x means nothing; the kernel's FUSE leaves it, other filesystems do not.)"""
    os.chmod(d('.'), 0o777)

    def write(f, flags=0):
        os.write(os.open(f, WR | flags), b'x')

    ops = (write, lambda f: write(f, os.O_APPEND), lambda f: write(f, os.O_TRUNC),
           lambda f: os.truncate(f, 1), lambda f: os.truncate(f, 100),
           lambda f: fallocate(os.open(f, WR), 0, 0, 99999), lambda f: fallocate(os.open(f, WR), 3, 0, 4096),
           lambda f: os.copy_file_range(os.open(d('src'), RD), os.open(f, WR), 5, 0, 0),
           lambda f: os.chown(f, os.getuid(), os.getgid()), lambda f: os.chown(f, -1, -1),
           lambda f: os.chmod(f, 0o6755), lambda f: os.write(os.open(f, WR), b''),
           lambda f: os.utime(f), lambda f: os.setxattr(f, 'user.x', b''))
    put(d('src'), b'12345')
    files = [d('f%d' % i) for i in range(len(ops))]
    for owner in (OWNER, OTHER):
        for group in (1001, 2000):
            for mode in (0o6777, 0o2776, 0o4766):
                for who in (ROOT, OWNER, (1001, 1001, [2000])):
                    for f in files:
                        put(f, b'0123456789')
                        os.chown(f, owner[0], group)
                        os.chmod(f, mode)
                    o.note((owner[0], group, oct(mode), who), in_child(who, lambda: tries(
                        [lambda f=f, op=op: op(f) for f, op in zip(files, ops)])))
                    o.note('are', [(mode_of(f), ids(f)) for f in files])
    os.mkdir(d('dir'))
    os.chmod(d('dir'), 0o6777)
    o(os.chown, d('dir'), 1001, 2000)
    o.note('directory', mode_of(d('dir')))
    os.chmod(d('dir'), 0o2777)
    for n, who in enumerate((ROOT, OWNER, MEMBER, OTHER)):
        def make():
            os.umask(0)
            top = d('dir/%d' % n)
            os.mkdir(top, 0o755)
            os.close(os.open(top + 'f', CR | WR, 0o2775))
            os.mknod(top + 'n', stat.S_IFREG | 0o6771)
            os.mkfifo(top + 'p', 0o2777)
            os.mkdir(top + 'd', 0o2777)
            os.symlink('x', top + 's')
            os.chmod(top + 'f', 0o2770)
            return tries([lambda: os.chmod(top + 'd', 0o2755), lambda: os.chmod(top + 'd', 0o755)])
        o.note(who, in_child(who, make))
        for k in ('', 'f', 'n', 'p', 'd', 's'):
            o.note(k, (mode_of(d('dir/%d' % n) + k), ids(d('dir/%d' % n) + k)))


@case()
def extended_attributes(o, d):
    put(d('f'))
    os.mkdir(d('dir'))
    os.symlink('f', d('s'))
    big = b'v' * 3000
    for n in ('f', 'dir'):
        for name, value in (('user.a', b''), ('user.b', b'1'), ('user.big', big), ('user.' + 'n' * 250, b'x'),
                            ('user.' + 'n' * 251, b'x'), ('user.', b'x'), ('user', b'x'), ('nonsense.x', b'x'),
                            ('trusted.t', b't'), ('security.s', b's'), ('system.x', b'x'),
                            ('user.huge', b'h' * 65537), ('user.\xff'.encode('latin1'), b'bytes')):
            o(os.setxattr, d(n), name, value)
            o(os.getxattr, d(n), name)
        o(lambda: sorted(os.listxattr(d(n))))
        o.note('names as another sees them', in_child(OTHER, lambda: sorted(os.listxattr(d(n)))))
        o(os.setxattr, d(n), 'user.b', b'2', os.XATTR_CREATE)
        o(os.setxattr, d(n), 'user.c', b'2', os.XATTR_REPLACE)
        o(os.setxattr, d(n), 'user.b', b'3', os.XATTR_REPLACE)
        o(os.getxattr, d(n), 'user.b')
        o(os.removexattr, d(n), 'user.b')
        o(os.removexattr, d(n), 'user.b')
        o(os.getxattr, d(n), 'user.b')
        buf = os.fsencode(d(n))
        for size in (0, 1, 5, 3000):
            o(call, libc.getxattr, buf, b'user.big', b' ' * max(size, 1), size)
            o(call, libc.listxattr, buf, b' ' * max(size, 1), size)
    for name in ('user.a', 'trusted.a', 'security.a'):
        o(os.setxattr, d('s'), name, b'x', follow_symlinks=False)
        o(os.getxattr, d('s'), name, follow_symlinks=False)
    o(os.listxattr, d('s'), follow_symlinks=False)
    f = os.open(d('f'), RD)
    o(os.setxattr, f, 'user.fd', b'1')
    o(os.setxattr, os.open(d('f'), os.O_PATH), 'user.fd', b'1')
    os.chmod(d('f'), 0o444)
    o(os.setxattr, d('f'), 'user.ro', b'1')
    os.chmod(d('f'), 0o200)
    o(os.getxattr, d('f'), 'user.a')
    os.chmod(d('dir'), 0o1777)
    o.note('sticky', in_child(OTHER, lambda: os.setxattr(d('dir'), 'user.o', b'1')))
    os.chmod(d('f'), 0o644)


@case(ROOT)
def capabilities(o, d):
    cap = struct.pack('<5I', 0x02000001, 1 << 13, 0, 0, 0)
    os.chmod(d('.'), 0o777)
    for i, op in enumerate((lambda: os.write(os.open(d('f'), WR), b'x'), lambda: os.truncate(d('f'), 0),
                            lambda: os.chown(d('f'), 1001, -1), lambda: os.chmod(d('f'), 0o755),
                            lambda: os.close(os.open(d('f'), WR | os.O_TRUNC)),
                            lambda: fallocate(os.open(d('f'), WR), 0, 0, 10))):
        put(d('f'), b'x')
        o(os.setxattr, d('f'), 'security.capability', cap)
        o(op)
        o.note(i, attributes(d('f')))
        os.unlink(d('f'))


def flags_of(path, cmd=0x80086601):
    a = array.array('i', [0, 0])
    fcntl.ioctl(os.open(path, RD), cmd, a)
    return a[0] & ~0x80000  # without "uses extents"


def set_flags(path, flags):
    fcntl.ioctl(os.open(path, RD), 0x40086602, array.array('i', [flags | 0x80000 * stat.S_ISREG(os.stat(path).st_mode), 0]))


def xflags_of(path):
    b = bytearray(28)
    fcntl.ioctl(os.open(path, RD), 0x801c581f, b)
    return struct.unpack('7I', b)


def set_project(path, project):
    b = bytearray(28)
    fcntl.ioctl(os.open(path, RD), 0x801c581f, b)
    b[12:16] = struct.pack('I', project)
    fcntl.ioctl(os.open(path, RD), 0x401c5820, bytes(b))


NODUMP, IMMUTABLE, APPEND, NOATIME = 0x40, 0x10, 0x20, 0x80


@case()
def inode_flags(o, d):
    put(d('f'), b'data')
    os.mkdir(d('dir'))
    put(d('dir/x'), b'x')
    for n in ('f', 'dir'):
        for flags in (NODUMP, NODUMP | NOATIME, 0, 0x40000000):
            o(set_flags, d(n), flags)
            o(flags_of, d(n))
            o(xflags_of, d(n))
    o.note('other', in_child(OTHER, lambda: tries([lambda: set_flags(d('f'), NODUMP), lambda: flags_of(d('f'))])))
    o(set_project, d('f'), 0)
    for request in (0x5401, 0x541b, 0x5452, 0x7fff):  # TCGETS, FIONREAD, FIOASYNC, nothing
        o(fcntl.ioctl, os.open(d('f'), RD), request, bytearray(64))
    os.mkfifo(d('p'))
    o(fcntl.ioctl, os.open(d('p'), RD | os.O_NONBLOCK), 0x80086601, bytearray(8))
    o(set_flags, d('f'), IMMUTABLE)
    if os.getuid():
        return
    try:
        f = os.open(d('dir/x'), RW)
        ops = (lambda: os.write(os.open(d('f'), WR), b'x'), lambda: os.truncate(d('f'), 0),
               lambda: os.unlink(d('f')), lambda: os.rename(d('f'), d('g')), lambda: os.link(d('f'), d('g')),
               lambda: os.chmod(d('f'), 0o600), lambda: os.chown(d('f'), 1, 1), lambda: os.utime(d('f')),
               lambda: os.utime(d('f'), ns=(1, 1)), lambda: os.setxattr(d('f'), 'user.i', b''),
               lambda: os.pread(os.open(d('f'), RD), 9, 0), lambda: os.rename(d('dir/x'), d('f')),
               lambda: os.write(os.open(d('f'), WR | os.O_APPEND), b'more'),
               lambda: os.close(os.open(d('dir/n'), CR | WR)), lambda: os.unlink(d('dir/x')),
               lambda: os.rename(d('dir/x'), d('dir/y')), lambda: os.pwrite(f, b'y', 0), lambda: os.rmdir(d('dir')),
               lambda: os.mkdir(d('dir/sub')))
        for flags in (IMMUTABLE, APPEND):
            o(set_flags, d('f'), flags)
            o(set_flags, d('dir'), flags)
            for op in ops:
                o(op)
            o.note('left', (get(d('f')), sorted(os.listdir(d('dir')))))
    finally:
        for n in ('f', 'dir'):
            set_flags(d(n), 0)


def setfacl(*args):
    p = subprocess.run(['setfacl'] + list(args), capture_output=True)
    return p.returncode


def getfacl(path):
    return subprocess.run(['getfacl', '-cpE', path], capture_output=True).stdout.decode().split()


if ACL:
    @case(ROOT)
    def acl_enforced(o, d):
        os.chmod(d('.'), 0o777)
        put(d('f'), b'data')
        os.chown(d('f'), 1001, 1001)
        os.chmod(d('f'), 0o640)

        def look():
            return [in_child(w, lambda: [os.access(d('f'), m) for m in (4, 2, 1)] + tries(
                [lambda: os.open(d('f'), RD), lambda: os.open(d('f'), WR)])) for w in (OWNER, MEMBER, OTHER)]

        for spec in (['-m', 'u:1003:rw'], ['-m', 'u:1002:---'], ['-m', 'g:2000:rw'], ['-x', 'u:1002'],
                     ['-m', 'm::r'], ['-m', 'g:3000:---'], ['-m', 'u::---'], ['-b']):
            o.note(spec, (setfacl(*spec, d('f')), getfacl(d('f')), mode_of(d('f')), look()))
        setfacl('-m', 'u:1003:rwx', d('f'))
        for mode in (0o600, 0o660, 0o777, 0o4711):
            os.chmod(d('f'), mode)
            o.note(oct(mode), (getfacl(d('f')), look()))
        for who in (OWNER, MEMBER, OTHER):  # only the owner may
            o.note(who, in_child(who, lambda: (setfacl('-m', 'u:7:r', d('f')), setfacl('-b', d('f')))))
            o.note('is', getfacl(d('f')))
        # A set-gid bit does not survive an owner outside of the group.
        os.chown(d('f'), 1001, 2000)
        for who in (OWNER, (1001, 1001, [2000]), ROOT):
            os.chmod(d('f'), 0o2775)
            o.note('sgid', (in_child(who, lambda: setfacl('-m', 'u:7:rx,g::rx', d('f'))), mode_of(d('f'))))
            os.chmod(d('f'), 0o2775)
            o.note('sgid', (in_child(who, lambda: setfacl('-b', d('f'))), mode_of(d('f'))))

    @case()
    def acl_inherited(o, d):
        os.chmod(d('.'), 0o777)
        os.mkdir(d('p'))
        os.chmod(d('p'), 0o777)
        o.note('set', setfacl('-d', '-m', 'u:1003:rwx,g:2000:rx,u::rwx,g::rx,o::---', d('p')))

        def make(mask):
            os.umask(mask)
            top = d('p/%o.' % mask)
            for m in (0o666, 0o777, 0o600, 0o6777):
                os.close(os.open(top + 'f%o' % m, CR | WR, m))
                os.mkdir(top + 'd%o' % m, m)
                os.mkfifo(top + 'p%o' % m, m)
                os.mknod(top + 'n%o' % m, stat.S_IFREG | m)
            os.symlink('x', top + 's')
            os.mkdir(top + 'd777/below')

        for mask in (0, 0o022, 0o077, 0o777):
            o.note(mask, in_child(USER if os.getuid() else OTHER, lambda: make(mask)))
        for base, dirs, files in os.walk(d('p')):
            dirs.sort()
            for n in sorted(dirs + files):
                p = os.path.join(base, n)
                o.note(n, (mode_of(p), ids(p), getfacl(p) if not os.path.islink(p) else None))
        f = os.open(d('p'), os.O_TMPFILE | RW, 0o666)
        o.note('tmpfile', (oct(os.fstat(f).st_mode), attributes(f)))
        o.note('gone', (setfacl('-k', d('p')), getfacl(d('p'))))
        os.umask(0o027)
        os.close(os.open(d('p/after'), CR | WR, 0o666))
        o.note('after', mode_of(d('p/after')))
