# SPDX-License-Identifier: BSD-2-Clause
"""A long mixed load on a mount; what the daemon holds must stay as it is. See soak.sh.

usage: soak.py MOUNT BACKING PID SECONDS SEED
"""
import errno
import hashlib
import os
import random
import statistics
import sys
import threading
import time

MOUNT, BACKING, PID, SECONDS, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
DIRS, FILES = 40, 100
END = time.monotonic() + SECONDS
wrong = []
done = {}


def path(top, d, f):
    return f'{top}/d{d}/f{f}'


def content(key, version, size):
    """Says of itself which file and version it is, every 64 bytes; half of it compresses well."""
    line = f'{key} v{version}'.encode().ljust(32)
    noise = hashlib.sha256(line).digest()
    return ((line + noise) * (size // 64 + 1))[:size]


def counted(name):
    done[name] = done.get(name, 0) + 1


def reader(rng):
    while time.monotonic() < END and not wrong:
        d, f = int(rng.paretovariate(1.1)) % DIRS, rng.randrange(FILES)
        try:
            with open(path(MOUNT, d, f), 'rb') as h:
                data = h.read()
        except OSError as e:
            # Replaced behind the mount since the name was looked up.
            if e.errno not in (errno.ENOENT, errno.ESTALE):
                wrong.append(f'{d}/{f}: {e}')
            counted(errno.errorcode[e.errno])
            continue
        counted('read')
        # One version throughout, of this file: writers replace whole files.
        if len(data) >= 64 and (data[:64] * (len(data) // 64 + 1))[:len(data)] != data:
            wrong.append(f'{d}/{f}: a mixture')
        elif len(data) >= 64 and not data.startswith(f'd{d}f{f} v'.encode()):
            wrong.append(f'{d}/{f}: bytes of {data[:32]!r}')


def writer(rng, top, name):
    version = 0
    while time.monotonic() < END and not wrong:
        d, f = rng.randrange(DIRS), rng.randrange(FILES)
        version += 1
        new = f'{path(top, d, f)}.{name}'
        with open(new, 'wb') as h:
            h.write(content(f'd{d}f{f}', version, int(rng.lognormvariate(9.5, 1.2)) % (1 << 20)))
            if rng.random() < .02:
                os.fsync(h.fileno())
        if rng.random() < .1:
            os.unlink(new)
        else:
            os.rename(new, path(top, d, f))
        counted(name)
        time.sleep(rng.random() * (.02 if top == MOUNT else .2))


def walker(rng):
    while time.monotonic() < END and not wrong:
        for base, _, names in os.walk(MOUNT):
            for n in names:
                try:
                    os.stat(f'{base}/{n}')
                except FileNotFoundError:
                    pass  # the writer's, meanwhile renamed
        counted('walk')
        time.sleep(rng.random() * 20)
        with open('/proc/sys/vm/drop_caches', 'w') as h:
            h.write(rng.choice('123'))


def sample():
    with open(f'/proc/{PID}/status') as h:
        s = dict(line.split(':', 1) for line in h)
    return (int(s['RssAnon'].split()[0]), len(os.listdir(f'/proc/{PID}/fd')), int(s['Threads']))


def main():
    print(f'seed {SEED}, {SECONDS:.0f} s', flush=True)
    for d in range(DIRS):
        os.makedirs(f'{BACKING}/d{d}', exist_ok=True)
        for f in range(FILES):
            with open(path(BACKING, d, f), 'wb') as h:
                h.write(content(f'd{d}f{f}', 0, 20000))
    threads = [threading.Thread(target=reader, args=(random.Random(SEED + i),)) for i in range(3)]
    threads.append(threading.Thread(target=writer, args=(random.Random(SEED + 10), MOUNT, 'written')))
    threads.append(threading.Thread(target=writer, args=(random.Random(SEED + 11), BACKING, 'behind')))
    threads.append(threading.Thread(target=walker, args=(random.Random(SEED + 12),)))
    threading.excepthook = lambda a: wrong.append(f'{a.exc_type.__name__}: {a.exc_value}')
    for t in threads:
        t.start()
    samples = []
    while time.monotonic() < END and not wrong:
        samples.append(sample())
        if len(samples) % 60 == 1:
            print('%5.0f s: anonymous memory %d KB, %d descriptors, %d threads; %s' %
                  ((SECONDS - END + time.monotonic(),) + samples[-1] + (done,)), flush=True)
        time.sleep(min(10, SECONDS / 30))
    for t in threads:
        t.join()
    third = len(samples) // 3
    for i, what in enumerate(('anonymous memory KB', 'descriptors', 'threads')):
        middle, last = (statistics.median(s[i] for s in part) for part in (samples[third:2 * third], samples[2 * third:]))
        print(f'{what}: middle third {middle}, last third {last}')
        if last > middle * 1.05 + (8192 if i == 0 else 2):
            wrong.append(f'{what} grow: {middle} to {last}')
    for w in wrong:
        print('WRONG:', w)
    sys.exit(bool(wrong))


main()
