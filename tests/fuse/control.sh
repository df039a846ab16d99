#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Garbage, silence and half requests on the control socket: one JSON sentence each, the daemon goes on
# and ends at once when unmounted. And what a new user meets: no card, no ~/.cache, a dead mount.
. "$SRC/tests/lib.sh"
need_fuse; need python3
mkdir "$T/b" "$T/m"
echo x >"$T/b/f"
"$GILD" format "$T/c" --size 64M >/dev/null
mount_gild -o card="$T/c" "$T/b" "$T/m"
pid=$(daemon_pid "$T/m")
cat >"$T/fuzz.py" <<'P'
import json, os, random, socket, subprocess, sys, time
mount, pid, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("seed", seed)
path = next("/run/gildfs/" + n[:-6] + ".sock" for n in os.listdir("/run/gildfs")
            if n.endswith(".mount") and open("/run/gildfs/" + n).read() == mount)

def ask(data, end=True):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(path)
        try:
            s.sendall(data)
            if end:
                s.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass
        got = b""
        try:
            while True:
                d = s.recv(65536)
                if not d:
                    break
                got += d
        except ConnectionResetError:
            pass
        return got

def error(data, **kw):
    got = ask(data, **kw)
    sentence = json.loads(got)["error"]
    assert isinstance(sentence, str) and got.count(b"\n") == 1, got

r = random.Random(seed)
for bad in (b"", b"\n", b"status\n", b"[]\n", b"{}\n", b'{"command": 3}\n', b'{"command": "no"}\n',
            b'{"command": "st', b"[" * 4000 + b"\n", b'{"command": "\\u0000"}\n', b"\xff\xfe\n"):
    error(bad)
for _ in range(200):
    error(r.randbytes(r.randrange(1, 300)).replace(b"\n", b"") + b"\n")
try:
    ask(b"x" * 100000)   # refused before it is read whole: its answer may be lost
except (BrokenPipeError, ConnectionResetError):
    pass
assert json.loads(ask(b'{"command": "status"}\n'))["pid"] == pid
good = b'{"command": "stats"}\n'
for _ in range(100):
    d = bytearray(good)
    for _ in range(r.randrange(1, 4)):
        d[r.randrange(len(d) - 1)] = r.choice(b'{}[]":, \\x00stau')
    json.loads(ask(bytes(d)))
# A client that says nothing must not keep the daemon alive.
s = socket.socket(socket.AF_UNIX)
s.connect(path)
s.sendall(b'{"comm')
start = time.monotonic()
subprocess.run(["umount", mount], check=True)
while os.path.exists(f"/proc/{pid}"):
    time.sleep(.01)
    assert time.monotonic() - start < 4, "the daemon waits for a silent client"
P
python3 "$T/fuzz.py" "$T/m" "$pid" "${GILD_SEED:-$(date +%s)}" || fail "the control socket"

mount_gild -o card="$T/c" "$T/b" "$T/m"
kill -9 "$(daemon_pid "$T/m")"
refused 1 "$GILDFS" -o card="$T/c" "$T/b" "$T/m"
grep -q 'unmount it first' "$T/err" || fail "the dead mount is not named: $(cat "$T/err")"
umount "$T/m"

as="setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=$T/home XDG_RUNTIME_DIR=$T/home"
if [ -e /etc/mtab ] && command -v fusermount3 >/dev/null && $as test -r /dev/fuse -a -w /dev/fuse; then
  chmod 711 "$T"; mkdir -m 777 "$T/home" "$T/um"; chown 65534 "$T/um" "$T/b"
  $as "$GILDFS" -o card-size=64M "$T/b" "$T/um" 2>"$T/err" || fail "as a user: $(cat "$T/err")"
  grep -q "made an embedded card.* at $T/home/.cache/gildfs/" "$T/err" || fail "where is the card?"
  [ "$($as cat "$T/um/f")" = x ] || fail "reading as a user"
  $as "$GILD" status "$T/um" >/dev/null || fail "status as a user"
  $as fusermount3 -u "$T/um"
fi
