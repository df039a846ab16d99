#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Other users of the machine, against a daemon of root: names swapped for symlinks behind the mount while
# it works, cards and sockets of theirs in our place; and what the daemon keeps of root's rights.
. "$SRC/tests/lib.sh"
need_fuse; need python3 setpriv
chmod 711 "$T"
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
mkdir "$T/b" "$T/b/u" "$T/m" "$T/outside" "$T/outside/dir"
echo inside >"$T/b/f"

# Modes do not depend on the umask; a directory that was there becomes private.
mkdir -m 777 "$T/c0"
(umask 0; "$GILD" format "$T/c0" --size 64M >/dev/null)
(umask 777; "$GILD" format "$T/c" --size 64M >/dev/null)
(umask 0; mount_gild -o card="$T/c0" "$T/b" "$T/m"); umount_gild "$T/m"
(umask 777; mount_gild -o card="$T/c" "$T/b" "$T/m")
for c in "$T/c" "$T/c0"; do
  odd=$(find "$c" \( -type d ! -perm 700 \) -o \( -type f ! -perm 600 \))
  [ -z "$odd" ] || fail "not private: $(ls -ld $odd)"
done
(umask 022; echo x >"$T/m/new"; mkdir "$T/m/newdir")
[ "$(stat -c %a "$T/b/new" "$T/b/newdir" | xargs)" = "644 755" ] || fail "the daemon's umask shows"

# What is left of root's rights: as src/tools/privileges.c lists them.
pid=$(daemon_pid "$T/m")
status() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$pid/status"; }
[ "$(status NoNewPrivs)" = 1 ] || fail "new privileges"
for set in CapEff CapPrm; do
  [ $((0x$(status $set) & ~0x8920021f)) = 0 ] || fail "$set: $(status $set)"
done
for t in /proc/"$pid"/task/*/status; do
  [ "$(sed -n 's/^CapEff:[[:space:]]*//p' "$t")" = "$(status CapEff)" ] || fail "a thread has more"
done

# The control socket: nobody else gets there, and who does is not answered.
sock=$(grep -lx "$T/m" /run/gildfs/*.mount); sock=${sock%.mount}.sock
[ "$(stat -c %a /run/gildfs "$sock" "${sock%.sock}.mount" | xargs)" = "700 600 600" ] || fail "socket modes"
cat >"$T/ask.py" <<'P'
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])             # while root
os.setgroups([]); os.setgid(65534); os.setuid(65534)
s2 = socket.socket(socket.AF_UNIX)
try:
    s2.connect(sys.argv[1])
    sys.exit("connected")
except PermissionError:
    pass
P
python3 "$T/ask.py" "$sock" || fail "another user reached the socket"
umount_gild "$T/m"

# A card that another user could change.
chmod 770 "$T/c"; refused 1 mount_gild -o card="$T/c" "$T/b" "$T/m"
chmod 700 "$T/c"; chown 65534 "$T/c"
refused 1 mount_gild -o card="$T/c" "$T/b" "$T/m"
refused 1 "$GILD" format "$T/c" --size 64M --force
chown 0 "$T/c"
mkdir "$T/shared"; chmod 1777 "$T/shared"
ln -s "$T/outside" "$T/shared/lock"
refused 1 "$GILD" format "$T/shared" --size 64M
[ -z "$(find "$T/outside" -newer "$T/c0/card.json" -type f)" ] || fail "format followed a symlink"

# A user's own mount: squatters in the shared place of its card and its socket.
as="$nobody env HOME=$T/home XDG_CACHE_HOME=$T/shared XDG_RUNTIME_DIR=$T/shared"
if [ -e /etc/mtab ] && command -v fusermount3 >/dev/null && $nobody test -r /dev/fuse -a -w /dev/fuse; then
  mkdir -m 777 "$T/home" "$T/um" "$T/shared/gildfs"
  chown 65534 "$T/um"
  refused 1 $as "$GILDFS" -o card-size=64M "$T/b" "$T/um"
  grep -q "no place for the embedded card" "$T/err" || fail "$(cat "$T/err")"
  $nobody "$GILD" format "$T/home/card" --size 64M >/dev/null
  $as "$GILDFS" -o card="$T/home/card" "$T/b" "$T/um" 2>"$T/err" && fail "a squatted socket directory"
  grep -q 'only this user may write' "$T/err" || fail "$(cat "$T/err")"
  cat >"$T/squat.py" <<'P'
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o666); s.listen(1)
print("ready", flush=True)
c, _ = s.accept()
c.recv(4096)
c.sendall(b'{"mountpoint": "owned"}\n')
P
  mkfifo "$T/ready"
  # The name is that of the mount point, the server is somebody else's.
  setpriv --reuid=65533 --regid=65533 --clear-groups python3 "$T/squat.py" \
    "$T/shared/gildfs/$(basename "$sock")" >"$T/ready" &
  squatter=$!
  read -r _ <"$T/ready"
  refused 1 $as "$GILD" status "$T/m"
  kill "$squatter" 2>/dev/null || true
fi

# A setuid copy refuses to do anything.
cp "$GILDFS" "$T/setuid"; chmod 4755 "$T/setuid"
if ! findmnt -no OPTIONS --target "$T" | grep -q nosuid; then
  refused 1 $nobody "$T/setuid" "$T/b" "$T/m"
  grep -q 'setuid' "$T/err" || fail "$(cat "$T/err")"
fi

# The racer.
echo SECRET >"$T/outside/secret"; echo SECRET >"$T/outside/dir/secret"
cat >"$T/race.py" <<'P'
import ctypes, errno, os, random, subprocess, sys, time
b, m, out, seconds, seed = sys.argv[1:4] + [float(sys.argv[4]), int(sys.argv[5])]
print("seed", seed)
r = random.Random(seed)
libc = ctypes.CDLL(None, use_errno=True)
NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC

def state(top):
    return sorted((p, s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
                  for d, ds, fs in os.walk(top) for p in [d] + [os.path.join(d, f) for f in fs]
                  for s in [os.lstat(p)])

def swapper():   # a user behind the mount: dir and symlink, file and symlink, again and again
    os.setgid(65534); os.setuid(65534); os.chdir(b)
    while True:
        for x, y in (("d", "dl"), ("d/f", "d/fl"), ("d/sub", "d/subl")):
            libc.renameat2(-100, x.encode(), -100, y.encode(), 2)

os.makedirs(b + "/d/sub")
for f in ("d/secret", "d/f", "d/sub/secret"):
    open(f"{b}/{f}", "w").write("inside\n")
os.symlink(out, b + "/dl"); os.symlink(out + "/secret", b + "/d/fl"); os.symlink(out + "/dir", b + "/d/subl")
for d, ds, fs in os.walk(b):
    for p in [d] + [os.path.join(d, f) for f in ds + fs]:
        os.lchown(p, 65534, 65534)
before = state(out)
pid = os.fork()
if pid == 0:
    try:
        swapper()
    finally:
        os._exit(1)

done = 0
def attempt(f):
    global done
    try:
        got = f()
        done += 1
        assert not isinstance(got, bytes) or b"SECRET" not in got, "read from outside"
    except OSError as e:
        assert e.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ESTALE, errno.EEXIST,
                           errno.EISDIR, errno.ENOTEMPTY, errno.EINVAL, errno.EXDEV, errno.ENODATA,
                           errno.EOPNOTSUPP, errno.EPERM), e

def with_fd(path, flags, f, dir_fd=None):
    fd = os.open(path, flags | NOFOLLOW, 0o644, dir_fd=dir_fd)
    try:
        return f(fd)
    finally:
        os.close(fd)

def data(fd):
    os.fchmod(fd, 0o640); os.fchown(fd, 65534, 65534); os.write(fd, b"outside?\n"); os.ftruncate(fd, 5)
    os.utime(fd); os.setxattr(fd, "user.x", b"1"); return os.pread(fd, 100, 0)

try:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        def work(d):
            n = "n%d" % r.randrange(8)
            for f in (lambda: with_fd("secret", os.O_RDONLY, lambda fd: os.read(fd, 100), d),
                      lambda: with_fd("f", os.O_RDWR, data, d),
                      lambda: with_fd(n, os.O_CREAT | os.O_RDWR, data, d),
                      lambda: with_fd("sub", os.O_RDONLY | os.O_DIRECTORY,
                                      lambda s: with_fd("secret", os.O_RDWR, data, s), d),
                      lambda: os.mkdir(n + "d", dir_fd=d), lambda: os.rmdir(n + "d", dir_fd=d),
                      lambda: os.mkfifo(n + "p", dir_fd=d), lambda: os.symlink("x", n + "l", dir_fd=d),
                      lambda: os.link("f", n + "h", src_dir_fd=d, dst_dir_fd=d, follow_symlinks=False),
                      lambda: os.rename(n, n + "r", src_dir_fd=d, dst_dir_fd=d),
                      lambda: os.unlink(n + r.choice("rplh"), dir_fd=d), lambda: os.listdir(d) and None):
                attempt(f)
        attempt(lambda: with_fd(m + "/d", os.O_RDONLY | os.O_DIRECTORY, work))
finally:
    os.kill(pid, 9); os.waitpid(pid, 0)
assert done > 100, f"only {done} calls worked"
assert state(out) == before, "something outside was touched"
print(done, "calls")
P
chown 65534 "$T/b/u"
for coherence in strict ttl; do
  rm -rf "$T/b/u"; mkdir "$T/b/u"; chown 65534:65534 "$T/b/u"
  mount_gild -o card="$T/c",coherence=$coherence,ttl=0.01 "$T/b" "$T/m"
  python3 "$T/race.py" "$T/b/u" "$T/m/u" "$T/outside" "${RACE_SECONDS:-4}" "${GILD_SEED:-$(date +%s)}" ||
    fail "the racer, $coherence"
  umount_gild "$T/m"
done
