#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""operations_readonly.py NATIVE MOUNT: what may not be done on a read-only filesystem, with the same
tree (f, dir/x, link -> f) in both. Prints what differs; exit 1 if anything does."""
import os, sys
from operations import Out, differ, fallocate, get, rename2

RD, WR, RW, CR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_CREAT


def outcomes(top):
    o = Out()

    def d(name):
        return os.path.join(top, name)

    for flags in (RD, WR, RW, RD | os.O_TRUNC, WR | os.O_APPEND, WR | CR, CR | os.O_EXCL | WR):
        o(os.open, d('f'), flags)
        o(os.open, d('new'), flags)
        o(os.open, d('link'), flags)
    for fn, args in ((os.mkdir, ('new',)), (os.mkdir, ('dir',)), (os.rmdir, ('dir',)), (os.rmdir, ('none',)),
                     (os.unlink, ('f',)), (os.unlink, ('none',)), (os.rename, ('f', 'g')),
                     (os.rename, ('none', 'g')), (os.link, ('f', 'g')), (os.symlink, ('f', 'g')),
                     (os.mkfifo, ('p',))):
        o(fn, *[d(a) for a in args])
    o(rename2, d('f'), d('dir/x'), 2)
    for fn in (lambda: os.chmod(d('f'), 0o600), lambda: os.chown(d('f'), 1, 1), lambda: os.utime(d('f')),
               lambda: os.truncate(d('f'), 1), lambda: os.setxattr(d('f'), 'user.x', b''),
               lambda: os.removexattr(d('f'), 'user.x'), lambda: os.open(d('.'), os.O_TMPFILE | RW),
               lambda: fallocate(os.open(d('f'), RD), 0, 0, 9), lambda: os.access(d('f'), os.W_OK),
               lambda: os.access(d('f'), os.R_OK), lambda: get(d('f')), lambda: sorted(os.listdir(d('dir'))),
               lambda: os.statvfs(d('f')).f_flag & os.ST_RDONLY, lambda: os.fsync(os.open(d('f'), RD))):
        o(fn)
    return o.log


sys.exit(differ(outcomes(sys.argv[1]), outcomes(sys.argv[2]), 'read-only'))
