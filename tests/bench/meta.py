# SPDX-License-Identifier: BSD-2-Clause
"""Metadata operations a second in a directory: creating, renaming and removing files of 8 KiB, and
listing directories of 50,000 entries with and without attributes.

usage: meta.py DIR meta|list  ->  lines `operation number`
"""
import os
import subprocess
import sys
import time

FILES = 2000


def timed(name, fn, count):
    start = time.perf_counter()
    fn()
    print(name, count / (time.perf_counter() - start), flush=True)


def meta(d):
    data = os.urandom(8192)
    os.mkdir(d)

    def create():
        for i in range(FILES):
            f = os.open(f'{d}/{i}', os.O_CREAT | os.O_WRONLY, 0o644)
            os.write(f, data)
            os.close(f)
    timed('create', create, FILES)
    timed('rename', lambda: [os.rename(f'{d}/{i}', f'{d}/r{i}') for i in range(FILES)], FILES)
    timed('unlink', lambda: [os.unlink(f'{d}/r{i}') for i in range(FILES)], FILES)
    os.rmdir(d)


def drop():
    with open('/proc/sys/vm/drop_caches', 'w') as f:
        f.write('2')


def listing(d):
    for flag in '-f', '-l':
        drop()
        timed('ls' + flag, lambda flag=flag: subprocess.run(['ls', flag, d], stdout=subprocess.DEVNULL, check=True), 50000)


(meta if sys.argv[2] == 'meta' else listing)(sys.argv[1])
