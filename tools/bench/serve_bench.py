#!/usr/bin/env python3
"""Measures `troupe serve` with aiperf, a load generator for such servers: time to the first token, and between tokens, at
several numbers of clients, and what the server's HTTP thread costs.

usage: serve_bench.py TROUPE MODEL AIPERF [--clients 1,8,32] [--requests-per-client 6] [--input 64] [--output 64]
`tools/dev bench-serve` installs aiperf and calls it."""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile


def thread_seconds(pid, name):
    """The CPU time of the threads of a process with that name."""
    ticks = 0
    for task in pathlib.Path("/proc/%d/task" % pid).iterdir():
        if (task / "comm").read_text().strip() == name:
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# Only loaded, never asked: the server counts the tokens. Any tokenizer that lies in a folder will do.
TOKENIZER = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden/tiny-llama3"


def load(args, url, clients, folder):
    requests = max(12, clients * args.requests_per_client)
    prompts = pathlib.Path(folder, "prompts.jsonl")
    prompts.write_text("".join(json.dumps({"text": ("Story %d: tell me why it matters, and how. " % i) * (args.input // 12)}) + "\n" for i in range(requests)))
    command = [args.aiperf, "profile", "--model", "m", "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", str(TOKENIZER),
               "--use-server-token-count", "--concurrency", str(clients), "--request-count", str(requests),
               "--input-file", str(prompts), "--custom-dataset-type", "single_turn", "--extra-inputs", "max_tokens:%d" % args.output,
               "--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0", "--random-seed", "1", "--ui-type", "none",
               "--output-artifact-dir", folder]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    summary = pathlib.Path(folder, "profile_export_aiperf.json")
    if ran.returncode != 0 or not summary.exists():
        sys.exit("aiperf failed:\n" + ran.stdout[-4000:])
    return json.loads(summary.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["troupe", "model", "aiperf"]:
        parser.add_argument(name)
    parser.add_argument("--clients", default="1,8,32")
    for name, value in [("--requests-per-client", 6), ("--input", 64), ("--output", 64)]:
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    server = subprocess.Popen([args.troupe, "--model", args.model, "serve", "--listen", "127.0.0.1:0", "--model-name", "m"],
                              stdout=subprocess.PIPE, text=True)
    url = re.fullmatch(r"listening at (\S+)\n", server.stdout.readline()).group(1)
    print("clients   TTFT p50/p99 ms   between tokens p50/p99 ms   tokens/s   HTTP thread, us a token")
    try:
        for clients in map(int, args.clients.split(",")):
            before = thread_seconds(server.pid, "troupe.http")
            with tempfile.TemporaryDirectory() as folder:
                figures = load(args, url, clients, folder)
            http = thread_seconds(server.pid, "troupe.http") - before
            first, between = figures["time_to_first_token"], figures["inter_chunk_latency"]
            tokens = figures["request_count"]["avg"] * figures["output_sequence_length"]["avg"]
            print("%7d %9.0f / %-7.0f %12.1f / %-12.1f %9.0f %17.1f" % (clients, first["p50"], first["p99"], between["p50"], between["p99"],
                                                                figures["output_token_throughput"]["avg"], http * 1e6 / tokens), flush=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


if __name__ == "__main__":
    main()
