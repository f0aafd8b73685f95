#!/usr/bin/env python3
"""Real clients against `troupe serve` on the default model: OpenAI's own, and Prometheus' parser.

usage: openai_client.py TROUPE MODEL   Starts the server itself. Writes a line of JSON for each case:
{"case": …, "error": null | what went wrong}. Needs the packages openai and prometheus-client."""
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

import openai
from prometheus_client.parser import text_string_to_metric_families

TROUPE, MODEL = sys.argv[1:3]
KEY = "a-key"
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


class Server:
    def __init__(self):
        keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        keys.write("# of the tests\n%s\n" % KEY)
        keys.flush()
        self.process = subprocess.Popen(
            [TROUPE, "--model", MODEL, "--exact", "serve", "--listen", "127.0.0.1:0", "--model-name", "smol", "--api-key-file", keys.name],
            stdout=subprocess.PIPE, text=True)
        self.url = re.fullmatch(r"listening at (http://\S+)\n", self.process.stdout.readline()).group(1)
        keys.close()
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key=KEY, max_retries=0, timeout=120)

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"Authorization": "Bearer " + KEY})
        with urllib.request.urlopen(request) as reply:
            return reply.read().decode()

    def state(self):
        return json.loads(self.get("/debug/state"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


def troupe_run(**request):
    line = json.dumps({"id": 1, **request})
    ran = subprocess.run([TROUPE, "--model", MODEL, "--exact", "run", "-"], input=line, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout)


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("%s expected" % kind.__name__)


def models(s):
    assert [m.id for m in s.client.models.list()] == ["smol"]
    assert s.client.models.retrieve("smol").owned_by == "troupe"


def chat(s):
    answer = s.client.chat.completions.create(model="smol", messages=QUESTION, temperature=0, max_tokens=32)
    assert "Paris" in answer.choices[0].message.content, answer
    assert answer.choices[0].message.role == "assistant" and answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def chat_stream(s):
    whole = s.client.chat.completions.create(model="smol", messages=QUESTION, temperature=0, max_completion_tokens=32)
    chunks = list(s.client.chat.completions.create(model="smol", messages=QUESTION, temperature=0, max_completion_tokens=32, stream=True,
                                                   stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content, (text, whole)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])


def chat_logprobs(s):
    answer = s.client.chat.completions.create(model="smol", messages=QUESTION, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    for e in entries:
        assert len(e.top_logprobs) == 3 and e.top_logprobs[0].logprob == e.logprob and e.logprob <= 0
        assert bytes(e.bytes).decode() == e.token
    assert answer.choices[0].message.content == "".join(e.token for e in entries), answer
    streamed = s.client.chat.completions.create(model="smol", messages=QUESTION, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3, stream=True)
    assert [e for c in streamed for e in ((c.choices[0].logprobs and c.choices[0].logprobs.content) or [])] == entries


def completions(s):
    answer = s.client.completions.create(model="smol", prompt=["The capital of France is", "2 + 2 ="], temperature=0, max_tokens=6, echo=True)
    assert answer.choices[0].text.startswith("The capital of France is Paris"), answer
    assert answer.choices[1].text.startswith("2 + 2 =")


def completion_logprobs(s):
    l = s.client.completions.create(model="smol", prompt="The capital of France is", temperature=0, max_tokens=6, logprobs=2).choices[0].logprobs
    assert len(l.tokens) == len(l.token_logprobs) == len(l.top_logprobs) == len(l.text_offset) == 6
    assert all(l.top_logprobs[i][l.tokens[i]] == l.token_logprobs[i] for i in range(6))
    assert l.text_offset == [len("".join(l.tokens[:i])) for i in range(6)]


def stop(s):
    plain = s.client.completions.create(model="smol", prompt="Count: 1, 2, 3, 4,", temperature=0, max_tokens=24)
    cut = s.client.completions.create(model="smol", prompt="Count: 1, 2, 3, 4,", temperature=0, max_tokens=24, stop=[" 7", "zzz"])
    assert " 7" in plain.choices[0].text, plain
    assert cut.choices[0].text == plain.choices[0].text.split(" 7")[0] and cut.choices[0].finish_reason == "stop"


def n_answers(s):
    answer = s.client.chat.completions.create(model="smol", messages=QUESTION, n=2, seed=5, max_tokens=12)
    again = s.client.chat.completions.create(model="smol", messages=QUESTION, n=2, seed=5, max_tokens=12)
    assert [c.index for c in answer.choices] == [0, 1]
    assert [c.message.content for c in answer.choices] == [c.message.content for c in again.choices]
    streamed = ["", ""]
    for chunk in s.client.chat.completions.create(model="smol", messages=QUESTION, n=2, seed=5, max_tokens=12, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == [c.message.content for c in answer.choices]


def same_as_run(s):
    greedy = dict(prompt="Once upon a time", temperature=0, max_tokens=32)
    assert s.client.completions.create(model="smol", **greedy).choices[0].text == troupe_run(**greedy)["text"]
    seeded = dict(prompt="Once upon a time", temperature=0.9, top_p=0.9, seed=42, max_tokens=32)
    extra = dict(top_k=40, min_p=0.01, repetition_penalty=1.1)
    ours = s.client.completions.create(model="smol", **seeded, extra_body=extra)
    assert ours.choices[0].text == troupe_run(**seeded, **extra)["text"]
    chunks = s.client.completions.create(model="smol", **seeded, extra_body=extra, stream=True)
    assert "".join(c.choices[0].text for c in chunks) == ours.choices[0].text


def errors(s):
    create = s.client.chat.completions.create
    missing = raises(openai.NotFoundError, lambda: create(model="gpt-4", messages=QUESTION))
    assert missing.code == "model_not_found", missing
    wrong = raises(openai.BadRequestError, lambda: create(model="smol", messages=QUESTION, temperature=-1))
    assert wrong.type == "invalid_request_error" and "temperature" in wrong.message
    assert raises(openai.BadRequestError, lambda: create(model="smol", messages=QUESTION, extra_body={"frobnicate": 1})).param == "frobnicate"
    assert raises(openai.BadRequestError, lambda: create(model="smol", messages=QUESTION, tools=[{"type": "function", "function": {"name": "f"}}])).param == "tools"
    stranger = openai.OpenAI(base_url=s.url + "/v1", api_key="wrong", max_retries=0)
    assert raises(openai.AuthenticationError, stranger.models.list).code == "invalid_api_key"
    raises(openai.BadRequestError, lambda: s.client.completions.create(model="smol", prompt="a " * 20000))


def hang_up(s):
    stream = s.client.completions.create(model="smol", prompt="Once upon a time", temperature=0, max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
    for _, _ in zip(range(3), stream):
        pass
    stream.close()
    while s.state()["calls"] != 0 or s.state()["facts"]["in_flight"] != 0:
        time.sleep(0.01)
    state = s.state()
    assert state["running"] == 0 and state["scheduler"]["tokens"] < 4000, state
    assert state["facts"]["used_blocks"] + state["facts"]["fenced_blocks"] == 0, state


def trace(s):
    # What somebody does who wonders about an answer: fetch the recording, find the request by the end of the answer's id.
    answer = s.client.completions.create(model="smol", prompt="Two words", temperature=0, max_tokens=5)
    number = int(answer.id.removeprefix("cmpl-")[16:], 16)
    with tempfile.NamedTemporaryFile(suffix=".trace") as file:
        request = urllib.request.Request(s.url + "/debug/trace", headers={"Authorization": "Bearer " + KEY})
        with urllib.request.urlopen(request) as reply:
            file.write(reply.read())
        file.flush()
        told = subprocess.run([TROUPE, "trace", "request", file.name, str(number)], stdout=subprocess.PIPE, text=True, check=True).stdout
        checked = subprocess.run([TROUPE, "trace", "check", file.name], stdout=subprocess.PIPE, text=True)
    assert "length" in told, told
    assert checked.returncode == 0, checked.stdout


def metrics(s):
    def figures():
        return {(m.name, m.labels.get("finished_reason")): m.value
                for family in text_string_to_metric_families(s.get("/metrics")) for m in family.samples}
    before = figures()
    usage = [s.client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=5 + i).usage for i in range(5)]
    after = figures()

    def rise(name, reason=None):
        return after[name, reason] - before[name, reason]
    assert rise("vllm:generation_tokens_total") == sum(u.completion_tokens for u in usage)
    assert rise("vllm:prompt_tokens_total") == sum(u.prompt_tokens for u in usage)
    assert rise("vllm:request_success_total", "stop") + rise("vllm:request_success_total", "length") == 5
    assert rise("vllm:e2e_request_latency_seconds_count") == 5
    assert after["vllm:num_requests_running", None] == 0


def sigterm(s):
    stream = s.client.completions.create(model="smol", prompt="Once upon a time", temperature=0, max_tokens=60, stream=True, extra_body={"ignore_eos": True})
    first = next(iter(stream))
    s.process.send_signal(signal.SIGTERM)
    rest = list(stream)
    assert first and rest[-1].choices[0].finish_reason == "length", rest[-1]
    assert s.process.wait() == 0


CASES = [models, chat, chat_stream, chat_logprobs, completions, completion_logprobs, stop, n_answers, same_as_run, errors, hang_up, trace, metrics, sigterm]


def main():
    server = Server()
    for case in CASES:
        error = None
        try:
            case(server)
        except Exception:
            error = traceback.format_exc()
        print(json.dumps({"case": case.__name__, "error": error}), flush=True)
    if server.process.poll() is None:
        server.process.kill()


if __name__ == "__main__":
    main()
