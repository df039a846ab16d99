# SPDX-License-Identifier: BSD-2-Clause
"""Every operation, in a directory of the backing's filesystem and in the mount: the same outcome.

usage: calls.py NATIVE MOUNT [CASE...]

A case is a function of a directory; what it wants compared it passes to note() as (label, value);
call() notes a result, or the name of the error. Nothing here says what is right: the filesystem
beneath does.
"""
import ctypes
import errno
import os
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
NOTES = []
CASES = []


def case(fn):
    CASES.append(fn)
    return fn


def note(label, value):
    NOTES.append((label, value))


def name_of(e):
    return errno.errorcode.get(e.errno, str(e.errno))


def call(label, fn, *args, **kw):
    """The value, or None with the error noted."""
    try:
        v = fn(*args, **kw)
    except OSError as e:
        note(label, name_of(e))
        return None
    note(label, v if type(v) in (int, str, bytes, list, tuple, bool, type(None)) else 'ok')
    return v


def c_call(label, fn, *args):
    """A call of the C library by its own convention."""
    ctypes.set_errno(0)
    r = fn(*args)
    note(label, r if r >= 0 else errno.errorcode[ctypes.get_errno()])
    return r


def as_user(fn, uid=1234, gid=1234, groups=(), umask=0o022):
    """Runs fn in a child as another user; its notes come back."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            del NOTES[:]
            os.umask(umask)
            os.setgroups(list(groups))
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            fn()
            with os.fdopen(w, 'w') as f:
                f.write(repr(NOTES))
            os._exit(0)
        except BaseException as e:  # pylint: disable=broad-except
            print('child:', repr(e), file=sys.stderr)
            os._exit(1)
    os.close(w)
    with os.fdopen(r) as f:
        text = f.read()
    _, status = os.waitpid(pid, 0)
    note('child', status)
    NOTES.extend(eval(text) if text else [])


def put(path, data=b'x', mode=0o644):
    f = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(f, data)
    os.close(f)


def get(path):
    with open(path, 'rb') as f:
        return f.read()


def attr(path, follow=False):
    st = os.stat(path, follow_symlinks=follow)
    return (oct(st.st_mode), st.st_nlink, st.st_uid, st.st_gid, st.st_size, st.st_blksize,
            st.st_rdev if stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode) else 0)


def run(fn, top):
    d = os.path.join(top, fn.__name__)
    os.mkdir(d)
    os.chmod(d, 0o700)
    del NOTES[:]
    fn(d)
    return list(NOTES)


# What FUSE does differently, and why.
EXPLAINED = {
    ('setgid_directories', 'f'): 'set-gid without group execute: the kernel keeps it when FUSE files are written',
    ('flag_ioctls', 'appending open'): 'the daemon sees no opens: the write is what fails',
    ('flag_ioctls', 'write'): '... also by a descriptor older than chattr +a',
    ('flag_ioctls', 'content'): 'the same',
}
# The kernel lets a FUSE filesystem preallocate, punch and zero, nothing else.
for _off in '0 4096', '8192 8192', '4096 1048576', '100 5000':
    for _mode in 'collapse', 'insert':
        EXPLAINED['fallocate_modes', f'{_mode} {_off}'] = 'EOPNOTSUPP from the kernel'


def main():
    native, mount, chosen = sys.argv[1], sys.argv[2], sys.argv[3:]
    os.umask(0)
    bad = compared = 0
    for fn in CASES:
        if chosen and fn.__name__ not in chosen:
            continue
        want, have = run(fn, native), run(fn, mount)
        explained = False
        for i in range(max(len(want), len(have))):
            w, h = (x[i] if i < len(x) else None for x in (want, have))
            compared += 1
            if w == h:
                continue
            if (fn.__name__, (w or h)[0]) in EXPLAINED:
                explained = True
                continue
            if explained and (h is None or h[0] == 'after'):
                continue  # what the explained call would have led to
            explained = False
            bad += 1
            print(f'{fn.__name__}: native {w}, mount {h}')
    print(f'{compared} outcomes compared, {bad} differ')
    sys.exit(bad > 0 or compared == 0)



if __name__ == '__main__':
    sys.modules['calls'] = sys.modules['__main__']
    import calls_data  # noqa
    import calls_attr  # noqa
    main()
