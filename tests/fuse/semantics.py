#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""semantics.py MOUNT BACKING TTL: what programs rely on, call by call, on a mount; run as root.
Prints the names of the checks that fail; exit 1 if any does. TTL in seconds."""
import ctypes, errno, fcntl, mmap, os, shutil, socket, stat, subprocess, sys, time, traceback

M, B, TTL = sys.argv[1], sys.argv[2], float(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
RD, RW, WR, CR = os.O_RDONLY, os.O_RDWR, os.O_WRONLY, os.O_CREAT


def m(name):
    return os.path.join(M, name)


def b(name):
    return os.path.join(B, name)


def put(path, data):
    with open(path, 'wb') as f:
        f.write(data)


def get(path):
    with open(path, 'rb') as f:
        return f.read()


def refused(code, fn, *args):
    try:
        fn(*args)
    except OSError as e:
        assert e.errno == code, e
    else:
        raise AssertionError('not refused')


def as_user(uid, gid, fn, mask=0o022):
    """Runs fn in a child with these ids; its exception fails the check."""
    pid = os.fork()
    if pid == 0:
        rc = 1
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.umask(mask)
            fn()
            rc = 0
        except BaseException:
            traceback.print_exc()
        os._exit(rc)
    assert os.waitpid(pid, 0)[1] == 0


def permissions(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def wait_ttl():
    time.sleep(TTL * 1.2 + 0.02)


def suid_is_cleared():
    """A write, a truncate and an O_TRUNC by somebody else clear the set-uid bit, here and there."""
    p = m('suid')

    def append():
        os.write(os.open(p, WR | os.O_APPEND), b'y')

    for change in (append, lambda: os.truncate(p, 1), lambda: os.open(p, WR | os.O_TRUNC)):
        put(p, b'xxx')
        os.chmod(p, 0o4777)
        as_user(65534, 65534, change)
        assert permissions(p) == permissions(b('suid')) == 0o777
    assert get(p) == get(b('suid')) == b''


def two_appenders():
    p = m('app')
    put(p, b'')
    pids = []
    for who in b'12':
        pid = os.fork()
        if pid == 0:
            f = os.open(p, WR | os.O_APPEND)
            for i in range(1000):
                os.write(f, b'%c%07d\n' % (who, i))
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    lines = get(p).split(b'\n')
    assert len(lines) == 2001 and len(set(lines)) == 2001 and get(b('app')) == get(p)


def append_here_and_behind():
    p = m('app2')
    f, g = os.open(p, WR | CR | os.O_APPEND), os.open(b('app2'), WR | os.O_APPEND)
    for i in range(200):
        os.write(f, b'm%07d\n' % i)
        os.write(g, b'b%07d\n' % i)
    wait_ttl()
    want = b''.join(b'm%07d\nb%07d\n' % (i, i) for i in range(200))
    assert get(p) == want == get(b('app2'))


def shared_mapping():
    f = os.open(m('mm'), RW | CR)
    os.ftruncate(f, 1 << 20)
    with mmap.mmap(f, 1 << 20) as a:
        for o in range(0, 1 << 20, 1000):
            a[o:o + 4] = b'abcd'
        assert os.pread(f, 4, 5000) == b'abcd'
        a.flush()
    os.close(f)
    assert get(m('mm')) == get(b('mm'))
    f = os.open(m('mm'), RW | os.O_APPEND)  # pages go home to their place, not to the end
    with mmap.mmap(f, 1 << 20) as a:
        a[5000:5004] = b'zzzz'
        a.flush()
    os.close(f)
    assert os.stat(b('mm')).st_size == 1 << 20 and get(m('mm')) == get(b('mm'))


def unlinked_but_open():
    f = os.open(m('ul'), RW | CR)
    os.write(f, b'hello')
    os.unlink(m('ul'))
    os.pwrite(f, b'J', 0)
    assert os.pread(f, 9, 0) == b'Jello' and os.fstat(f).st_nlink == 0
    os.ftruncate(f, 2)
    os.fchmod(f, 0o600)
    os.fsync(f)
    assert os.pread(f, 9, 0) == b'Je'
    os.close(f)


def replaced_but_open():
    put(m('rn'), b'old')
    f = os.open(m('rn'), RD)
    put(m('rn2'), b'new')
    os.rename(m('rn2'), m('rn'))
    assert os.read(f, 9) == b'old' and get(m('rn')) == b'new'


def truncating_open():
    put(m('tr'), b'x' * 10000)
    os.close(os.open(m('tr'), WR | os.O_TRUNC))
    assert get(m('tr')) == get(b('tr')) == b''
    f = os.open(m('tr'), RW)
    os.pwrite(f, b'end', 5000)
    assert get(m('tr')) == bytes(5000) + b'end'


def exclusive_create():
    os.close(os.open(m('ex'), CR | os.O_EXCL | WR, 0o644))
    refused(errno.EEXIST, os.open, m('ex'), CR | os.O_EXCL | WR)
    f = os.open(m('ro'), CR | WR, 0o444)  # a mode that its own owner could not open again
    os.write(f, b'x')
    os.close(f)
    assert get(b('ro')) == b'x' and permissions(b('ro')) == 0o444


def owner_and_umask():
    os.mkdir(m('pub'))
    os.chmod(m('pub'), 0o777)

    def make():
        put(m('pub/f'), b'')
        os.mkdir(m('pub/d'))
        os.symlink('x', m('pub/l'))

    as_user(1234, 5678, make, 0o027)
    for name, mode in (('f', 0o640), ('d', 0o750), ('l', 0o777)):
        st = os.lstat(b('pub/' + name))
        assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (1234, 5678, mode), name


def setgid_directory():
    os.mkdir(m('sg'))
    os.chown(m('sg'), -1, 777)
    os.chmod(m('sg'), 0o2777)
    as_user(1234, 5678, lambda: (put(m('sg/f'), b''), os.mkdir(m('sg/d'))))
    assert os.stat(b('sg/f')).st_gid == os.stat(b('sg/d')).st_gid == 777
    assert permissions(b('sg/d')) == 0o2755


def acls_and_xattrs():
    if not shutil.which('setfacl'):
        return
    for d in ('da', 'db'):
        os.mkdir(b(d))
        subprocess.check_call(['setfacl', '-d', '-m', 'u:4321:rwx,g::rwx,o::r', b(d)])
    wait_ttl()

    def acl(path):
        return subprocess.check_output(['getfacl', '-cp', path])

    as_user(0, 0, lambda: (put(m('da/f'), b''), put(b('db/f'), b'')), 0o077)
    assert acl(b('da/f')) == acl(b('db/f'))  # the default ACL counts, not the umask
    subprocess.check_call(['setfacl', '-m', 'u:99:r', m('da/f')])
    assert b'user:99:r' in acl(b('da/f')) and acl(m('da/f')) == acl(b('da/f'))
    acl_is_the_mode(m('da/f'))
    os.setxattr(m('da/f'), 'user.k', b'v')
    subprocess.check_call(['cp', '-a', m('da/f'), m('da/g')])
    assert os.getxattr(b('da/g'), 'user.k') == b'v' and acl(b('da/g')) == acl(b('da/f'))
    if shutil.which('rsync'):
        subprocess.check_call(['rsync', '-aXA', m('da/'), m('de/')])
        assert os.getxattr(b('de/g'), 'user.k') == b'v' and acl(b('de/g')) == acl(b('da/f'))


def acl_is_the_mode(path):
    def set_it(acl):
        assert subprocess.call(['setfacl', '-m', acl, path]) == 0
    os.chown(path, 100, 100)
    for gid, kept in ((100, 0o2000), (101, 0)):
        os.chmod(path, 0o2755)
        assert permissions(path) == 0o2755
        as_user(100, gid, lambda: set_it('u::rwx,g::rwx,o::rwx,m::rwx'))
        assert permissions(path) == 0o777 | kept  # at once, and without SGID for a stranger


def capabilities():
    if not shutil.which('setcap'):
        return
    put(m('cap'), b'x')
    put(m('cap'), b'y')  # "it has none" is now remembered
    subprocess.check_call(['setcap', 'cap_net_raw+ep', m('cap')])
    assert os.getxattr(m('cap'), 'security.capability')
    put(m('cap'), b'z')
    refused(errno.ENODATA, os.getxattr, b('cap'), 'security.capability')
    refused(errno.ENODATA, os.getxattr, m('cap'), 'security.capability')


def special_files():
    os.mkfifo(m('ff'))
    if os.fork() == 0:
        put(m('ff'), b'through')
        os._exit(0)
    assert get(m('ff')) == b'through'
    os.wait()
    s = socket.socket(socket.AF_UNIX)
    s.bind(m('sock'))
    assert stat.S_ISSOCK(os.stat(b('sock')).st_mode)
    os.mknod(m('nul'), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    assert os.stat(b('nul')).st_rdev == os.makedev(1, 3)


def holes_and_ranges():
    f = os.open(m('sp'), RW | CR)
    os.ftruncate(f, 10 << 20)
    os.pwrite(f, b'x', 5 << 20)
    os.fsync(f)
    assert os.lseek(f, 0, os.SEEK_DATA) == 5 << 20
    assert os.lseek(f, 5 << 20, os.SEEK_HOLE) == (5 << 20) + 4096
    g = os.open(m('cfr'), RW | CR)
    assert os.copy_file_range(f, g, 8192, (5 << 20) - 4096, 0) == 8192
    assert os.pread(g, 1, 4096) == b'x'
    os.posix_fallocate(g, 0, 100000)
    assert os.fstat(g).st_size == 100000 and os.pread(g, 1, 4096) == b'x'
    assert libc.fallocate64(g, 3, ctypes.c_long(4096), ctypes.c_long(4096)) == 0
    assert os.pread(g, 1, 4096) == b'\0' and get(m('cfr')) == get(b('cfr'))


def directories():
    os.mkdir(m('dir'))
    d = os.open(m('dir'), RD)
    for i in range(2000):
        put(m('dir/%d' % i), b'')
    os.fsync(d)
    assert sorted(os.listdir(m('dir'))) == sorted(os.listdir(b('dir')))
    assert len(os.listdir(m('dir'))) == 2000
    n = 0
    for e in os.scandir(m('dir')):  # removing while reading
        os.unlink(e.path)
        n += 1
    assert n == 2000
    os.rmdir(m('dir'))


def rename_flags():
    put(m('x1'), b'1')
    put(m('x2'), b'2')
    one, two = m('x1').encode(), m('x2').encode()
    assert libc.renameat2(-100, one, -100, two, 2) == 0
    assert get(m('x1')) == b'2' and get(m('x2')) == b'1'
    assert libc.renameat2(-100, one, -100, two, 1) == -1
    assert ctypes.get_errno() == errno.EEXIST
    assert libc.renameat2(-100, one, -100, two, 3) == -1 and ctypes.get_errno() == errno.EINVAL
    data = get(two)
    assert libc.renameat2(-100, two, -100, one, 4) == 0, os.strerror(ctypes.get_errno())
    st = os.lstat(two)  # a whiteout
    assert stat.S_ISCHR(st.st_mode) and st.st_rdev == 0 and get(one) == data
    os.unlink(two)


def locks():
    put(m('lk'), b'')
    f, g = os.open(m('lk'), RW), os.open(m('lk'), RW)
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    refused(errno.EWOULDBLOCK, fcntl.flock, g, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(f, fcntl.LOCK_UN)
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    as_user(0, 0, lambda: refused(errno.EAGAIN, fcntl.lockf, os.open(m('lk'), RW),
                                  fcntl.LOCK_EX | fcntl.LOCK_NB))


def not_supported():
    put(m('io'), b'')
    refused(errno.ENOTTY, fcntl.ioctl, os.open(m('io'), RD), 0x5401, bytes(64))


def changed_behind_while_open():
    put(b('chg'), b'foo\n')
    wait_ttl()
    f, g = os.open(m('chg'), RD), os.open(b('chg'), WR)
    assert os.pread(f, 100, 0) == b'foo\n'
    for data in (b'barbaz, longer\n', b'other, longer\n\n'):
        os.pwrite(g, data, 0)
        wait_ttl()
        assert os.pread(f, 100, 0) == data  # whole at the first read, no fstat before it
    os.ftruncate(g, 3)
    wait_ttl()
    assert os.pread(f, 100, 0) == b'oth'
    st = os.fstat(g)
    os.pwrite(g, b'OTH', 0)
    os.utime(b('chg'), ns=(st.st_atime_ns, st.st_mtime_ns))
    wait_ttl()
    assert os.pread(f, 100, 0) == b'OTH'  # size and mtime are as before


CHECKS = (suid_is_cleared, two_appenders, append_here_and_behind, shared_mapping,
          unlinked_but_open, replaced_but_open, truncating_open, exclusive_create,
          owner_and_umask, setgid_directory, acls_and_xattrs, capabilities, special_files,
          holes_and_ranges, directories, rename_flags, locks, not_supported,
          changed_behind_while_open)
failed = []
for check in CHECKS:
    try:
        check()
    except Exception:
        traceback.print_exc()
        failed.append(check.__name__)
if failed:
    print('failed:', ' '.join(failed))
sys.exit(1 if failed else 0)
