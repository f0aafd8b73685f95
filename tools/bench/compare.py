#!/usr/bin/env python3
"""Times Troupe and llama.cpp on one file, side by side: for every batch size, round after round, first one and then the
other, and prints the medians and the ratio. Both decode greedily, rows in a batch with a KV stream each, from prompts
that are random tokens. llama.cpp is called through llama-cpp-python's low-level interface; what Python itself does with
the logits is left out of its time.

usage: compare.py BENCH MODEL [--threads N] [--rounds N] [--batches 1,4,8,16,32] [--json FILE]
Where llama_cpp or numpy cannot be imported it says so on stderr and exits with 3."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

PROMPT, TOKENS = 64, 64


class Troupe:
    def __init__(self, bench, model, max_batch, threads):
        self.child = subprocess.Popen([bench, "--answer", model, str(max_batch), str(threads)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def measure(self, batch):
        self.child.stdin.write(f"{batch} {PROMPT} {TOKENS}\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            sys.exit("compare: the benchmark of Troupe ended early")
        return tuple(map(float, line.split()))

    def close(self):
        self.child.stdin.close()
        if self.child.wait() != 0:
            sys.exit("compare: the benchmark of Troupe failed")


class LlamaCpp:
    def __init__(self, model, threads):
        import llama_cpp
        import numpy
        self.lib, self.np, self.threads = llama_cpp, numpy, threads
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(model.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"compare: llama.cpp cannot load {model}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.random = numpy.random.default_rng(7)

    def fill(self, batch, rows):
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence

    def decode(self, context, batch):
        """Seconds until the logits are there."""
        begin = time.perf_counter()
        if self.lib.llama_decode(context, batch) != 0:
            sys.exit("compare: llama_decode failed")
        self.lib.llama_synchronize(context)
        return time.perf_counter() - begin

    def best(self, context, row):
        return int(self.np.ctypeslib.as_array(self.lib.llama_get_logits_ith(context, row), shape=(self.vocab,)).argmax())

    def measure(self, batch):
        lib = self.lib
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = batch * (PROMPT + TOKENS + 32), batch
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = self.threads
        params.kv_unified = False
        context = lib.llama_init_from_model(self.model, params)
        work = lib.llama_batch_init(512, 0, 1)
        prefill, steps, current = 0.0, [], []
        for s in range(batch):
            prompt = self.random.integers(100, self.vocab - 100, PROMPT)
            self.fill(work, [(int(t), i, s, i == PROMPT - 1) for i, t in enumerate(prompt)])
            prefill += self.decode(context, work)
            current.append(self.best(context, PROMPT - 1))
        for k in range(TOKENS):
            self.fill(work, [(current[s], PROMPT + k, s, True) for s in range(batch)])
            steps.append(self.decode(context, work))
            current = [self.best(context, s) for s in range(batch)]
        lib.llama_batch_free(work)
        lib.llama_free(context)
        return batch / statistics.median(steps), batch * PROMPT / prefill


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", default="1,4,8,16,32")
    parser.add_argument("--json", help="a report of the benchmark, to which the figures are added")
    args = parser.parse_args()
    try:
        peer = LlamaCpp(args.model, args.threads)
    except ImportError as missing:
        print(f"compare: no llama.cpp to compare with ({missing})", file=sys.stderr)
        sys.exit(3)
    batches = [int(b) for b in args.batches.split(",")]
    ours = Troupe(args.bench, args.model, max(batches), args.threads)
    decode, prefill = {b: ([], []) for b in batches}, ([], [])
    for side in (ours, peer):
        side.measure(batches[0])  # the pages of the file are in
    for number in range(args.rounds):
        for b in batches:
            if sys.stderr.isatty():
                print(f"\r\x1b[Kround {number + 1} of {args.rounds}, batch {b}", end="", file=sys.stderr, flush=True)
            for k, side in enumerate((ours, peer)):
                step, prompt = side.measure(b)
                decode[b][k].append(step)
                prefill[k].append(prompt)
    ours.close()
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    title = f"Beside llama.cpp, {args.threads} threads, {PROMPT}-token prompts, medians of {args.rounds} interleaved rounds, tokens/s"
    print(f"\n{title}\n  {'':<20} {'Troupe':>10} {'llama.cpp':>10} {'ratio':>8}")
    figures = []
    for name, (a, b) in [(f"decode, batch {n}", decode[n]) for n in batches] + [("prefill", prefill)]:
        a, b = statistics.median(a), statistics.median(b)
        print(f"  {name:<20} {a:>10.1f} {b:>10.1f} {a / b:>8.2f}")
        figures += [{"section": title, "name": f"{name}, {who}", "value": value, "unit": unit}
                    for who, value, unit in (("Troupe", a, "tokens/s"), ("llama.cpp", b, "tokens/s"), ("ratio", a / b, ""))]
    if args.json:
        with open(args.json) as f:
            report = json.load(f)
        report["figures"] += figures
        with open(args.json, "w") as f:
            json.dump(report, f)


if __name__ == "__main__":
    main()
