#!/usr/bin/env python3
"""Many clients at a time stream answers from `troupe serve`, and three in ten hang up on the way.

usage: storm.py TROUPE MODEL [--clients 200] [--seconds 60] [--seed 1]
`tools/dev storm` calls it; the tests do, with --seconds 0: one round of each client.

Holds or fails: no client sees an error; each whole answer is the one that `troupe run` gives the same request, greedy or
seeded; the metrics add up; at the end every block and slot is back; memory does not grow while the storm lasts."""
import argparse
import asyncio
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import urllib.request

SUBJECTS = ["a lighthouse", "two brothers", "the price of bread", "an old engine", "rain in May", "the number seven",
            "a lost letter", "paper boats", "the north wind", "a clock that stopped", "three cats", "the last train"]


def make_kinds():
    kinds = []
    for i, subject in enumerate(SUBJECTS):
        kind = {"prompt": "Here is a story about %s." % subject, "max_tokens": 6 + 3 * i, "temperature": 0}
        if i % 4 == 1:
            kind.update(temperature=0.9, top_p=0.9, seed=100 + i)
        if i % 4 == 2:
            kind.update(temperature=1.1, top_k=40, repetition_penalty=1.1, seed=100 + i)
        if i % 4 == 3:
            kind["messages"] = [{"role": "user", "content": kind.pop("prompt")}]
        kinds.append(kind)
    return kinds


def answers_of_run(troupe, model, kinds):
    lines = "".join(json.dumps({"id": i, **kind}) + "\n" for i, kind in enumerate(kinds))
    ran = subprocess.run([troupe, "--model", model, "run", "-"], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    answers = {}
    for line in ran.stdout.splitlines():
        answer = json.loads(line)
        answers[int(answer["id"])] = answer["text"]
    assert len(answers) == len(kinds), ran.stdout
    return [answers[i] for i in range(len(kinds))]


class Server:
    def __init__(self, troupe, model):
        self.process = subprocess.Popen([troupe, "--model", model, "--flight", "4", "serve", "--listen", "127.0.0.1:0", "--model-name", "m"],
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(re.fullmatch(r"listening at http://\S+:(\d+)\n", self.process.stdout.readline()).group(1))

    def get(self, path):
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.port, path)) as reply:
            return reply.read().decode()

    def state(self):
        return json.loads(self.get("/debug/state"))

    def metrics(self):
        figures = {}
        for line in self.get("/metrics").splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                figures[name.replace('model_name="m",', "").replace('{model_name="m"}', "")] = float(value)
        return figures

    def resident_mib(self):
        status = pathlib.Path("/proc/%d/status" % self.process.pid).read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


class Wrong(Exception):
    pass


async def read_answer(reader, stop_after):
    """The text and the usage of a streamed answer; none after `stop_after` events."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise Wrong("refused: %r %r" % (head, await reader.read(2000)))
    body = b""
    text, usage, done = "", None, False
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        body += (await reader.readexactly(size + 2))[:-2]
        if size == 0:
            break
        while b"\n\n" in body:
            event, body = body.split(b"\n\n", 1)
            if event == b"data: [DONE]":
                done = True
                continue
            event = json.loads(event.removeprefix(b"data: "))
            if "error" in event:
                raise Wrong("in a stream: %r" % event)
            for choice in event["choices"]:
                text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            usage = event.get("usage") or usage
            if stop_after is not None:
                stop_after -= 1
                if stop_after <= 0:
                    return None, None
    if not done or usage is None:
        raise Wrong("a stream without its end: %r" % text)
    return text, usage


class Storm:
    def __init__(self, port, kinds, answers):
        self.port, self.answers, self.kinds = port, answers, kinds
        self.requests = []
        for kind in kinds:
            body = json.dumps({**kind, "stream": True, "stream_options": {"include_usage": True}}).encode()
            path = "/v1/chat/completions" if "messages" in kind else "/v1/completions"
            self.requests.append(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                                 % (path.encode(), len(body), body))
        self.whole = self.hung_up = self.tokens = self.prompt_tokens = 0
        self.wrong = []

    async def client(self, dice, until):
        """One request after another on one connection, until it hangs up and comes back by another."""
        connection = None
        while True:
            i = dice.randrange(len(self.kinds))
            leave = dice.randrange(6) if dice.random() < 0.3 else None
            try:
                if connection is None:
                    connection = await asyncio.open_connection("127.0.0.1", self.port)
                reader, writer = connection
                writer.write(self.requests[i])
                if leave == 0:
                    await writer.drain()
                    text = None
                else:
                    text, usage = await read_answer(reader, leave)
                if text is None:
                    self.hung_up += 1
                    writer.transport.abort() if dice.random() < 0.5 else writer.close()
                    connection = None
                elif text != self.answers[i]:
                    raise Wrong("%r instead of %r" % (text, self.answers[i]))
                else:
                    self.whole += 1
                    self.tokens += usage["completion_tokens"]
                    self.prompt_tokens += usage["prompt_tokens"]
            except (Wrong, OSError, asyncio.IncompleteReadError) as error:
                self.wrong.append("%s: %r" % (self.kinds[i], error))
                connection = None
            if asyncio.get_running_loop().time() >= until or len(self.wrong) > 20:
                break
        if connection is not None:
            connection[1].close()

    async def run(self, clients, seconds, seed, each_second):
        until = asyncio.get_running_loop().time() + seconds

        async def watch():
            while True:
                each_second()
                await asyncio.sleep(1)
        watcher = asyncio.create_task(watch())
        await asyncio.gather(*[self.client(random.Random(seed * 100000 + i), until) for i in range(clients)])
        watcher.cancel()


def settled(server):
    while True:
        state = server.state()
        if state["calls"] == 0 and state["facts"]["in_flight"] == 0 and state["running"] == state["waiting"] == 0:
            return state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("model")
    for name, value in [("--clients", 200), ("--seconds", 60), ("--seed", 1)]:
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    kinds = make_kinds()
    answers = answers_of_run(args.troupe, args.model, kinds)
    server = Server(args.troupe, args.model)
    failures = []

    def expect(holds, what):
        if not holds:
            failures.append(what)

    resident = []
    try:
        start = server.state()["facts"]
        storm = Storm(server.port, kinds, answers)
        asyncio.run(storm.run(args.clients, args.seconds, args.seed, lambda: resident.append(server.resident_mib())))
        state, metrics = settled(server), server.metrics()
        facts = state["facts"]
        failures += storm.wrong
        expect(storm.whole > 0, "no answer was whole")
        expect(facts["free_blocks"] + facts["cached_blocks"] == start["free_blocks"] and facts["free_slots"] == start["free_slots"],
               "not everything came back: %s, at the start %s" % (facts, start))
        ended = {reason: metrics['vllm:request_success_total{finished_reason="%s"}' % reason]
                 for reason in ["stop", "length", "abort", "error", "deadline"]}
        expect(ended["error"] == ended["deadline"] == 0, "ended: %s" % ended)
        # A client that hangs up may have been sent all of its answer, or its request may not have been read.
        expect(ended["stop"] + ended["length"] >= storm.whole and sum(ended.values()) <= storm.whole + storm.hung_up,
               "ended: %s, and clients saw %d whole answers and hung up %d times" % (ended, storm.whole, storm.hung_up))
        expect(metrics["vllm:generation_tokens_total"] == state["scheduler"]["tokens"],
               "%d tokens were generated, and %d counted" % (state["scheduler"]["tokens"], metrics["vllm:generation_tokens_total"]))
        expect(metrics["vllm:generation_tokens_total"] >= storm.tokens and metrics["vllm:prompt_tokens_total"] >= storm.prompt_tokens,
               "clients saw more tokens than were counted")
        # And exactly, when nobody hangs up.
        calm = Storm(server.port, kinds, answers)
        dice = random.Random(args.seed)
        dice.random = lambda: 1.0
        asyncio.run(calm.client(dice, 0))
        settled(server)
        after = server.metrics()
        expect(not calm.wrong and calm.whole == 1, "afterwards: %s" % calm.wrong)
        for name, seen in [("vllm:generation_tokens_total", calm.tokens), ("vllm:prompt_tokens_total", calm.prompt_tokens),
                           ("vllm:e2e_request_latency_seconds_count", 1), ("vllm:time_to_first_token_seconds_count", 1)]:
            expect(after[name] - metrics[name] == seen, "%s rose by %d, and the client saw %d" % (name, after[name] - metrics[name], seen))
        # Memory that a server takes for good (blocks of the KV cache; the flight recorder, which is small here so that it is
        # full soon) is taken within the first half.
        if args.seconds >= 30:
            half = resident[len(resident) // 2:]
            expect(max(half) - half[0] < 16, "memory grows: %s MiB" % [round(m) for m in resident])
        print("%d whole answers, %d hung up, %d tokens seen, ended %s" % (storm.whole, storm.hung_up, storm.tokens, ended))
        print("resident MiB: %s" % [round(m) for m in resident[::max(1, len(resident) // 12)]])
    finally:
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait()
    expect(status == 0, "the server ended with status %d" % status)
    for failure in failures[:20]:
        print("FAILED: " + failure)
    print("the storm %s" % ("FAILED" if failures else "left nothing behind"))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
