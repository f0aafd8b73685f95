#!/usr/bin/env python3
"""Nodes are killed and started again while requests stream from them.

usage: chaos.py TROUPE MODEL [--nodes 3] [--requests 200] [--tokens 120] [--every 3] [--kills 12] [--adapter FOLDER]
`tools/dev chaos` calls it; the tests do, on a tiny model, with a pace of their own.

Holds or fails: every request finishes; each stream is, token by token, the one of a run without nodes, so nothing was lost and
nothing delivered twice; with --adapter an adapter is loaded over all nodes, one after the other, under load and without a kill:
no request fails, and the longest pause that it made is printed."""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time


def certificates(folder):
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=chaos")
    for name in ("node", "runtime"):
        openssl("req", *curve, "-keyout", name + ".key", "-out", name + ".csr", "-subj", "/CN=" + name)
        openssl("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-out", name + ".pem")


def certificate_flags(folder, name):
    return ["--cert", str(folder / (name + ".pem")), "--key", str(folder / (name + ".key")), "--ca", str(folder / "ca.pem")]


class Node:
    def __init__(self, command):
        self.command, self.port = command, 0
        self.start()

    def start(self):
        # A port that a killed node had is free again at once; the loop is for a kernel that thinks otherwise for a moment.
        for _ in range(100):
            listen = ["--listen", "127.0.0.1:%d" % self.port]
            self.process = subprocess.Popen(self.command + listen, stdout=subprocess.PIPE, text=True)
            line = self.process.stdout.readline()
            found = re.fullmatch(r"listening at \S+:(\d+)\n", line)
            if found:
                self.port = int(found.group(1))
                return
            self.process.wait()
            time.sleep(0.05)
        raise SystemExit("a node does not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def make_requests(count, tokens, vocabulary, seed):
    rng = random.Random(seed)
    out = []
    for i in range(count):
        request = {"id": i, "prompt_ids": [rng.randrange(3, vocabulary) for _ in range(rng.randrange(4, 40))],
                   "max_tokens": tokens // 2 + rng.randrange(tokens), "ignore_eos": True}
        if i % 3 == 1:
            request.update(temperature=0.9, top_p=0.95, seed=i)
        if i % 3 == 2:
            request.update(repetition_penalty=1.2, temperature=0.7, seed=i)
        out.append(request)
    return out


def results(lines):
    return {r["id"]: r for r in map(json.loads, lines)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("troupe")
    parser.add_argument("model")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--vocabulary", type=int, default=40000, help="prompts are of ids below it")
    parser.add_argument("--every", type=float, default=3, help="seconds between two kills")
    parser.add_argument("--kills", type=int, default=12, help="at most")
    parser.add_argument("--spacing", type=float, default=0, help="seconds between two requests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--adapter")
    options = parser.parse_args()

    work = tempfile.TemporaryDirectory()
    folder = pathlib.Path(work.name)
    certificates(folder)
    common = [options.troupe, "--model", options.model, "--threads", "1", "--max-batch", "32"]
    if options.adapter:
        common += ["--max-loras", "2"]
    requests = make_requests(options.requests, options.tokens, options.vocabulary, options.seed)
    text = "".join(json.dumps(r) + "\n" for r in requests)
    undisturbed = results(subprocess.run(common + ["run", "-"], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())

    nodes = [Node(common + ["node"] + certificate_flags(folder, "node")) for _ in range(options.nodes)]
    command = common + ["run", "--nodes", ",".join("127.0.0.1:%d" % n.port for n in nodes), *certificate_flags(folder, "runtime"), "-"]
    spacing_ms = options.spacing * 1000 or (10 if options.adapter else 0)
    text = "".join(json.dumps(dict(r, arrive_ms=int(i * spacing_ms))) + "\n" for i, r in enumerate(requests))
    if options.adapter:  # some requests run before it, some while it goes from node to node, some after
        load = json.dumps({"lora": {"load": {"name": "pirate", "dir": os.path.abspath(options.adapter)}}, "at_ms": int(spacing_ms / 2 * len(requests))}) + "\n"
        text += load
    began = time.monotonic()
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lines = []

    def read():
        for line in run.stdout:
            lines.append(line)

    reader = threading.Thread(target=read)
    reader.start()
    run.stdin.write(text)
    run.stdin.close()
    kills = 0
    rng = random.Random(options.seed)
    while run.poll() is None:
        time.sleep(0.02)
        if options.adapter or kills >= options.kills or time.monotonic() - began < (kills + 1) * options.every:
            continue
        node = rng.choice(nodes)
        node.kill()
        kills += 1
        node.start()
    reader.join()
    seconds = time.monotonic() - began
    for node in nodes:
        node.process.send_signal(signal.SIGTERM)
    codes = [node.process.wait() for node in nodes]

    wrong = []
    got = results(line for line in lines if '"lora"' not in line)
    for i, wanted in undisturbed.items():
        r = got.get(i)
        if r is None:
            wrong.append("%s: no result" % i)
        elif r.get("error") or r["token_ids"] != wanted["token_ids"] or r.get("text") != wanted.get("text"):
            wrong.append("%s: %s where %s was to come" % (i, r, wanted))
    if run.returncode != 0:
        wrong.append("troupe run ended with %d" % run.returncode)
    if any(codes):
        wrong.append("the nodes ended with %s" % codes)
    for line in lines:
        if '"lora"' in line:
            print(line.strip())
    tokens = sum(len(r["token_ids"]) for r in undisturbed.values())
    print("%d requests, %d tokens over %d nodes in %.1f s; %d kills; %d wrong" % (len(undisturbed), tokens, len(nodes), seconds, kills, len(wrong)))
    if kills == 0 and not options.adapter:
        wrong.append("it was over before a node was killed")
    if wrong:
        print("\n".join(wrong[:5]))
        sys.exit(1)


if __name__ == "__main__":
    main()
