#!/usr/bin/env python3
"""A node in a network namespace of its own loses its cable while requests stream from it.

usage: cable.py TROUPE MODEL [--silence 1500]
Wants root and `ip`; says why and ends with 77 where they are not there.

Holds or fails: the loss is noticed within the stated time (--link-silence and a sixth of it); each answer is that of a run
without nodes, whichever node it ended on; the node serves again when the cable is back."""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chaos import certificate_flags, certificates, make_requests, results

GRACE = 2.0  # seconds for a loaded machine to look at what it knows


def need(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        done = subprocess.CompletedProcess(command, 1, stderr=str(error))
    if done.returncode != 0:
        print("no network namespaces here: %s: %s" % (" ".join(command), done.stderr.strip()))
        sys.exit(77)


class Listening:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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

    work = tempfile.TemporaryDirectory()
    folder = pathlib.Path(work.name)
    certificates(folder)
    common = [options.troupe, "--model", options.model, "--threads", "1", "--max-batch", "32"]
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"]) if os.geteuid() == 0 else None
    if holder is None:
        print("no network namespaces here: this is not root")
        sys.exit(77)
    inside = ["nsenter", "--net=/proc/%d/ns/net" % holder.pid]
    near, far, link = "10.213.77.1", "10.213.77.2", "tr%d" % (os.getpid() % 100000)
    try:
        time.sleep(0.2)
        need(*inside, "ip", "link", "set", "lo", "up")
        need("ip", "link", "add", link, "type", "veth", "peer", "name", "node0", "netns", str(holder.pid))
        need("ip", "address", "add", near + "/30", "dev", link)
        need("ip", "link", "set", link, "up")
        need(*inside, "ip", "address", "add", far + "/30", "dev", "node0")
        need(*inside, "ip", "link", "set", "node0", "up")
        check(options, common, folder, inside, far)
    finally:
        holder.kill()
        holder.wait()
        subprocess.run(["ip", "link", "delete", link], stderr=subprocess.DEVNULL)


def check(options, common, folder, inside, far):
    node_flags = ["node", *certificate_flags(folder, "node"), "--listen"]
    cut_off = Listening(inside + common + node_flags + [far + ":0"])
    other = Listening(common + node_flags + ["127.0.0.1:0"])
    server = Listening(common + ["serve", "--listen", "127.0.0.1:0", "--link-silence", str(options.silence), "--nodes",
                                 "%s:%d,127.0.0.1:%d" % (far, cut_off.port, other.port), *certificate_flags(folder, "runtime")])

    def get(path):
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (server.port, path), timeout=30) as reply:
            return json.load(reply)

    def state():
        return get("/replicas")["replicas"][0]

    def wait(what, limit):
        until = time.monotonic() + limit
        while not what():
            assert time.monotonic() < until, state()
            time.sleep(0.01)

    requests = make_requests(options.requests, options.tokens, options.vocabulary, 1)
    text = "".join(json.dumps(r) + "\n" for r in requests)
    wanted = results(subprocess.run(common + ["run", "-"], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())
    answers, threads = {}, []

    def ask(request):
        body = dict(request, prompt=request["prompt_ids"])
        del body["prompt_ids"], body["id"]
        call = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % server.port, data=json.dumps(body).encode(),
                                      headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=300) as reply:
            answers[request["id"]] = json.load(reply)["choices"][0]["text"]

    wait(lambda: state()["state"] == "up", 30)
    for request in requests:
        threads.append(threading.Thread(target=ask, args=(request,)))
        threads[-1].start()
    wait(lambda: state()["live"] > 0, 30)
    subprocess.run(inside + ["ip", "link", "set", "node0", "down"], check=True)
    cut = time.monotonic()
    stated = options.silence / 1000 * 7 / 6
    wait(lambda: state()["state"] != "up", stated + GRACE)
    noticed = time.monotonic() - cut
    for thread in threads:
        thread.join()
    wrong = [i for i, r in wanted.items() if answers.get(i) != r["text"]]
    subprocess.run(inside + ["ip", "link", "set", "node0", "up"], check=True)
    wait(lambda: state()["state"] == "up", 60)
    print("noticed after %.2f s, stated %.2f s; %d answers, %d wrong; back after the cable was" % (noticed, stated, len(answers), len(wrong)))
    codes = [p.end() for p in (server, cut_off, other)]
    if wrong or any(codes):
        print("wrong: %s; ended with %s" % (wrong[:5], codes))
        sys.exit(1)


main()
