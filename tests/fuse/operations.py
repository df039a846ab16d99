#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""operations.py NATIVE MOUNT BACKING [CASE...]: the same operations in a directory of the disk and on the
mount; every outcome (result or errno, state afterwards) must be the same, and the backing must
hold what the mount shows. Run as root: each case runs as root, as another user, or both.
Cases that need `acl` run when OPERATIONS_ACL is set. Prints what differs; exit 1 if anything does."""
import ctypes, errno, fcntl, hashlib, os, pickle, signal, stat, sys, time, traceback

sys.dont_write_bytecode = True
CASES = []
ROOT, USER = (0, 0, []), (65534, 65534, [4242])
ACL = bool(os.environ.get('OPERATIONS_ACL'))
libc = ctypes.CDLL(None, use_errno=True)


def case(*who):
    """Registers a case to be run as each of `who`."""
    def register(fn):
        CASES.append((fn, who or (ROOT, USER)))
        return fn
    return register


class Out:
    """What happened, call by call: results and errno names, in order."""
    def __init__(self):
        self.log = []

    def __call__(self, fn, *args, **kw):
        try:
            r = fn(*args, **kw)
        except OSError as e:
            self.note(fn, errno.errorcode[e.errno])
            return None
        shown = 'ok' if fn in (os.open, os.dup) else r
        self.note(fn, shown)
        return r

    def note(self, what, value):
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__ and frame.f_back:
            frame = frame.f_back
        self.log.append((frame.f_lineno, getattr(what, '__name__', str(what)), repr(value)))


def raise_errno():
    e = ctypes.get_errno()
    raise OSError(e, os.strerror(e))


def call(fn, *args):
    """A function of libc: its result, or OSError."""
    fixed = [a.encode() if isinstance(a, str) else ctypes.c_long(a) if isinstance(a, int) else a
             for a in args]
    fn.restype = ctypes.c_long
    r = fn(*fixed)
    if ctypes.c_int(r).value == -1:
        raise_errno()
    return r


def rename2(a, b, flags):
    return call(libc.renameat2, -100, a, -100, b, flags)


def fallocate(fd, mode, off, length):
    return call(libc.fallocate, fd, mode, off, length)


def put(path, data=b'', mode=None):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(fd, data)
    if mode is not None:
        os.fchmod(fd, mode)
    os.close(fd)


def get(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        out = b''
        while True:
            r = os.read(fd, 1 << 20)
            if not r:
                return out
            out += r
    finally:
        os.close(fd)


def digest(data):
    return hashlib.md5(data).hexdigest()[:8], len(data)


def content(path):
    return digest(get(path))


def mode_of(path):
    return oct(os.lstat(path).st_mode)


def ids(path):
    st = os.lstat(path)
    return st.st_uid, st.st_gid


def in_child(who, fn):
    """fn() in a process of that user (if this is root's); its result, or what it was killed by."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            uid, gid, groups = who
            if os.getuid() == 0:
                os.setgroups(groups)
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
            value = fn()
        except OSError as e:
            value = errno.errorcode[e.errno]
        except BaseException:
            value = ('raised', traceback.format_exc())
        with os.fdopen(w, 'wb') as f:
            pickle.dump(value, f)
        os._exit(0)
    os.close(w)
    with os.fdopen(r, 'rb') as f:
        data = f.read()
    status = os.waitpid(pid, 0)[1]
    return pickle.loads(data) if data else ('signal', os.WTERMSIG(status))


def attributes(path):
    """The sorted names of extended attributes with their values."""
    try:
        how = {} if isinstance(path, int) else {'follow_symlinks': False}
        return [(n, os.getxattr(path, n, **how)) for n in sorted(os.listxattr(path, **how))
                if ACL or not n.startswith('system.')]
    except OSError as e:
        return errno.errorcode[e.errno]


def tree(top):
    """Everything that is to be seen of a tree, without what cannot be the same."""
    out = {}
    for base, dirs, files in os.walk(os.fsencode(top)):
        for name in dirs + files + ([b''] if base == os.fsencode(top) else []):
            p = os.path.join(base, name)
            st = os.lstat(p)
            what = [oct(st.st_mode), st.st_nlink, st.st_uid, st.st_gid]
            if stat.S_ISREG(st.st_mode):
                what += [st.st_size]
                if st.st_size < 1 << 26:
                    what += [content(p)]
            elif stat.S_ISLNK(st.st_mode):
                what += [os.readlink(p)]
            elif stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
                what += [st.st_rdev]
            what += [attributes(p)]
            out[os.path.relpath(p, os.fsencode(top))] = what
    return out


def run_case(fn, who, top):
    """The outcomes of a case below `top`, which belongs to who runs it."""
    os.mkdir(top)
    os.chown(top, who[0], who[1])
    os.chmod(top, 0o755)

    def body():
        os.umask(0o022)
        out = Out()
        try:
            fn(out, lambda name: os.path.join(top, name))
        except BaseException:
            out.note('raised', traceback.format_exc())
        return out.log

    return in_child(who, body)


def differ(a, b, name):
    if not isinstance(a, list) or not isinstance(b, list):
        print('%s: ended with %s natively, %s on the mount' % (name, a, b))
        return True
    bad = False
    for i in range(max(len(a), len(b))):
        x = a[i] if i < len(a) else ('-', '-', 'nothing')
        y = b[i] if i < len(b) else ('-', '-', 'nothing')
        if x != y:
            bad = True
            print('%s: line %s, %s: %s natively, %s on the mount (line %s)' %
                  (name, x[0], x[1], x[2], y[2], y[0]))
            if x[1] != y[1]:
                break
    return bad


def differ_trees(a, b, name, sides):
    for p in sorted(set(a) | set(b)):
        if a.get(p) != b.get(p):
            print('%s: afterwards %r: %s %s, %s %s' % (name, p, sides[0], a.get(p), sides[1], b.get(p)))
    return a != b


def main():
    native, mount, backing, wanted = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    failed = []
    for fn, users in CASES:
        for who in users:
            name = '%s.%s' % (fn.__name__, 'root' if who == ROOT else 'user')
            if wanted and fn.__name__ not in wanted and name not in wanted:
                continue
            start = time.monotonic()
            n, m = run_case(fn, who, native + '/' + name), run_case(fn, who, mount + '/' + name)
            bad = differ(n, m, name)
            raised = [x for x in n if x[1] == 'raised'] if isinstance(n, list) else []
            if raised:
                print('%s: %s' % (name, raised))
                bad = True
            shown = tree(mount + '/' + name)
            bad |= differ_trees(tree(native + '/' + name), shown, name, ('native', 'mount'))
            bad |= differ_trees(tree(backing + '/' + name), shown, name, ('backing', 'mount'))
            if bad:
                failed.append(name)
            if os.environ.get('VERBOSE'):
                print('%-30s %4d outcomes %5.2f s' % (name, len(n), time.monotonic() - start))
    if failed:
        print('failed:', ' '.join(failed))
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    sys.modules['operations'] = sys.modules['__main__']
    import operations_names, operations_data, operations_rights  # noqa: F401
    main()
