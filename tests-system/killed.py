"""Processes that are killed while they wait on a mount whose server is gone: killed.py MNT READY GO.

Opens what it needs, makes the file READY, and begins when there is GO: children that ask for one thing each are killed after a moment, some
in the very moment that they ask. Prints those that do not end within five seconds, and exits 1 if there are any.
"""
import fcntl
import os
import sys
import time

mount, ready, go = sys.argv[1:]
file = os.open(mount + "/d/open", os.O_RDWR)
folder = os.open(mount + "/d", os.O_RDONLY)
asks = {
    "chdir": lambda: os.chdir(mount + "/d/e"),
    "stat": lambda: os.stat(mount + "/d/1"),
    "fstat": lambda: os.fstat(file),
    "list": lambda: os.listdir(folder),
    "open": lambda: os.open(mount + "/d/1", os.O_RDONLY),
    "read": lambda: os.pread(file, 10, 0),
    "write": lambda: os.pwrite(file, b"x", 0),
    "fsync": lambda: os.fsync(file),
    "truncate": lambda: os.ftruncate(file, 3),
    "create": lambda: os.open(mount + "/d/new", os.O_CREAT | os.O_RDWR),
    "mkdir": lambda: os.mkdir(mount + "/d/newer"),
    "unlink": lambda: os.unlink(mount + "/d/1"),
    "setxattr": lambda: os.setxattr(mount + "/d/1", "user.a", b"x"),
    "statvfs": lambda: os.statvfs(mount),
    "flock": lambda: fcntl.flock(file, fcntl.LOCK_EX),
}


def child(ask):
    pid = os.fork()
    if pid == 0:
        try:
            ask()
        except OSError:
            pass
        os._exit(0)
    return pid


open(ready, "w").close()
while not os.path.exists(go):
    time.sleep(0.02)
stuck = []
for pause in [0, 0, 0, 0.0005, 0.001, 0.002, 0.005, 0.3]:
    left = {child(ask): name for name, ask in asks.items()}
    time.sleep(pause)
    for pid in left:
        os.kill(pid, 9)
    until = time.time() + 5
    while left and time.time() < until:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        left.pop(pid, None)
        if pid == 0:
            time.sleep(0.01)
    stuck += [f"{name} after {pause} s" for name in left.values()]
    if left:
        break
print(*stuck, sep=", ", end="")
# Without closing anything, which would wait for the server.
sys.stdout.flush()
os._exit(1 if stuck else 0)
