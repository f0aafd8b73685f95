#!/usr/bin/env python3
"""The cable between a runtime and a node is pulled while requests stream from it, and put back.

usage: cable.py TROUPE MODEL [--silence 1500]

What is pulled is a filter in the kernel on the sockets of both ends, and on the node's listening one: it drops every segment that
arrives for them, acknowledgements and new connections included, and tells nobody. That wants no privileges and no network
namespace, only that a parent may reach for its children's sockets (pidfd_getfd); where it may not, it says so and ends with 77.

Holds or fails: the loss is noticed, by the silence and by nothing else; each answer is that of a run without nodes, whichever node
it ended on; while the cable is out the node does not come back, and once it is in it does."""
import argparse
import ctypes
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chaos import certificate_flags, certificates, make_requests, results

# By the heartbeats a loss is noticed within --link-silence and a sixth of it; by TCP alone it is after minutes, or never. What lies
# between leaves room for a machine that is busy with other things.
ROOM = 20
SO_ATTACH_FILTER, SO_DETACH_FILTER, SYS_PIDFD_GETFD = 26, 27, 438
LIBC = ctypes.CDLL(None, use_errno=True)


def sockets(process):
    """The TCP sockets of a child, as copies."""
    pidfd = os.pidfd_open(process.pid)
    try:
        for fd in os.listdir("/proc/%d/fd" % process.pid):
            try:
                if not os.readlink("/proc/%d/fd/%s" % (process.pid, fd)).startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue
            copy = LIBC.syscall(SYS_PIDFD_GETFD, pidfd, int(fd), 0)
            if copy < 0:
                error = ctypes.get_errno()
                if error == 9:  # closed meanwhile
                    continue
                print("nobody may reach for a child's sockets here: pidfd_getfd: %s" % os.strerror(error))
                sys.exit(77)
            with socket.socket(fileno=copy) as s:  # a copy that stays open would keep the connection so
                if s.family in (socket.AF_INET, socket.AF_INET6) and s.type == socket.SOCK_STREAM:
                    yield s
    finally:
        os.close(pidfd)


def ports(s):
    try:
        return s.getsockname()[1], s.getpeername()[1]
    except OSError:  # it listens, or is about to connect
        return s.getsockname()[1], 0


class Cable:
    """Between the node that listens at `port` and a runtime. While it is out, what the runtime opens anew meets the listening
    socket's filter, and what the node accepts inherits it."""

    def __init__(self, node, runtime, port):
        self.node, self.runtime, self.port = node, runtime, port

    def ends(self):
        for process in (self.node, self.runtime):
            for s in sockets(process):
                if self.port in ports(s):
                    yield s

    def pull(self):
        nothing = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF_RET | BPF_K: 0 bytes of it pass
        program = struct.pack("@HP", 1, ctypes.addressof(nothing))
        count = 0
        for s in self.ends():
            s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
            count += 1
        assert count >= 3, "%d sockets: the listening one and both ends of the link were to be there" % count

    def put_back(self):
        for s in self.ends():
            try:
                s.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, struct.pack("i", 0))
            except FileNotFoundError:  # one that was opened since
                pass


class Listening:
    def __init__(self, command, everybody):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        everybody.append(self.process)
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)\n", line)
        assert found, line
        self.port = int(found.group(1))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("troupe")
    parser.add_argument("model")
    parser.add_argument("--silence", type=int, default=1500, help="milliseconds")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--vocabulary", type=int, default=40000)
    options = parser.parse_args()
    everybody = []
    with tempfile.TemporaryDirectory() as work:
        try:
            check(options, pathlib.Path(work), everybody)
        finally:
            for process in everybody:
                process.kill()


def check(options, folder, everybody):
    certificates(folder)
    common = [options.troupe, "--model", options.model, "--threads", "1", "--max-batch", "32"]
    node_flags = ["node", *certificate_flags(folder, "node"), "--listen", "127.0.0.1:0"]
    cut_off = Listening(common + node_flags, everybody)
    other = Listening(common + node_flags, everybody)
    server = Listening(common + ["serve", "--listen", "127.0.0.1:0", "--link-silence", str(options.silence), "--nodes",
                                 "127.0.0.1:%d,127.0.0.1:%d" % (cut_off.port, other.port), *certificate_flags(folder, "runtime")], everybody)
    cable = Cable(cut_off.process, server.process, cut_off.port)

    def state():
        with urllib.request.urlopen("http://127.0.0.1:%d/replicas" % server.port, timeout=30) as reply:
            return json.load(reply)["replicas"][0]

    def wait(what, limit):
        until = time.monotonic() + limit
        while True:
            now = state()
            if what(now):
                return now
            assert time.monotonic() < until, now
            time.sleep(0.01)

    requests = make_requests(options.requests, options.tokens, options.vocabulary, 1)
    text = "".join(json.dumps(r) + "\n" for r in requests)
    wanted = results(subprocess.run(common + ["run", "-"], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())
    answers, threads = {}, []

    def ask(request):
        body = dict({"temperature": 0}, **request, prompt=request["prompt_ids"])  # the API's is 1, if nothing is said
        del body["prompt_ids"], body["id"]
        call = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % server.port, data=json.dumps(body).encode(),
                                      headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=300) as reply:
            answers[request["id"]] = json.load(reply)["choices"][0]["text"]

    wait(lambda s: s["state"] == "up", 60)
    for request in requests:
        threads.append(threading.Thread(target=ask, args=(request,), daemon=True))
        threads[-1].start()
    wait(lambda s: s["live"] > 0, 60)
    cable.pull()
    pulled = time.monotonic()
    stated = options.silence / 1000 * 7 / 6
    lost = wait(lambda s: s["state"] != "up", stated * ROOM)
    noticed = time.monotonic() - pulled
    for thread in threads:
        thread.join()
    wrong = [i for i, r in wanted.items() if answers.get(i) != r["text"]]
    tries = wait(lambda s: s["tries"] > lost["tries"], 60)  # it was tried again, in vain
    cable.put_back()
    wait(lambda s: s["state"] == "up", 60)
    print("noticed after %.2f s, stated %.2f s: %s; %d answers, %d wrong; %d tries without the cable, and back with it" %
          (noticed, stated, lost["error"], len(answers), len(wrong), tries["tries"]))
    codes = [p.end() for p in (server, cut_off, other)]
    if "nothing was heard of" not in lost["error"]:
        wrong.append("it was noticed by something else than the silence")
    if wrong or any(codes):
        print("wrong: %s; ended with %s" % (wrong[:5], codes))
        sys.exit(1)


main()
