#!/usr/bin/env python3
"""Writes a mixed workload for `troupe verify` on stdout: requests that arrive at staggered times, outputs of 1 to 200
tokens, prompts of a few words to several hundred, stops in the middle, a quarter (or --sampled) of the requests sampled,
some with think, min_tokens, penalties, log-probabilities, a cancel or a deadline. The same seed gives the same workload.

The token ids that think and logit_bias name are the default model's (SmolLM2): full stop, line feed, comma, " the"."""
import argparse
import json
import random

FULL_STOP, LINE_FEED, COMMA, THE = 30, 198, 28, 260

SUBJECTS = ["a lighthouse", "two rivers", "the number seven", "bread", "an old clock", "snow", "the sea", "a library",
            "seven friends", "a small engine", "tides", "glass", "the moon", "a garden in autumn", "copper", "kites"]
TASKS = ["Explain {} to a child.", "Write a short story about {}.", "List five facts about {}.", "What is {} good for?",
         "Compare {} with {}.", "Write a poem about {} and {}.", "Give me instructions to draw {}.", "Why do people like {}?"]
STARTS = ["Once upon a time there was {}", "The history of {} begins", "def count_{}(items):\n", "1, 2, 3, 4,", "Dear friend,\n\nabout {}",
          "Ingredients:\n-"]


def fill(rng, text):
    while "{}" in text:
        text = text.replace("{}", rng.choice(SUBJECTS), 1)
    return text


def prompt(rng):
    if rng.random() < 0.6:
        messages = [{"role": "system", "content": "You answer briefly."}] if rng.random() < 0.3 else []
        return {"messages": messages + [{"role": "user", "content": fill(rng, rng.choice(TASKS))}]}
    text = fill(rng, rng.choice(STARTS))
    if rng.random() < 0.3:  # a prompt of several chunks
        text = " ".join(fill(rng, rng.choice(TASKS)) for _ in range(rng.randint(20, 60))) + "\n" + text
    return {"prompt": text}


def request(rng, index, spacing_ms, sampled):
    out = {"id": index, **prompt(rng), "max_tokens": rng.choice([1, 2, 3, rng.randint(4, 40), rng.randint(40, 200), 200]),
           "arrive_ms": index * spacing_ms + rng.randint(0, spacing_ms)}
    if int((index + 3) * sampled) > int((index + 2) * sampled):
        out.update(temperature=rng.choice([0.5, 0.8, 1.2]), seed=rng.randrange(2**63))
        out.update(rng.choice([{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}, {"repetition_penalty": 1.1}, {"presence_penalty": 0.5}]))
    if index % 3 == 0:
        out.update(rng.choice([{"stop": [". "]}, {"stop": ["\n\n", " and "]}, {"stop_token_ids": [LINE_FEED]}, {"stop": [","]}]))
    if index % 5 == 2:
        out["ignore_eos"] = True
    if index % 8 == 3:
        out["min_tokens"] = min(out["max_tokens"], rng.randint(1, 30))
    if index % 8 == 6:  # once a full stop came, no comma and no " the" any more
        out["think"] = {"close": FULL_STOP, "bar": [COMMA, THE]}
    if index % 16 == 7:
        out["logprobs"] = 3
    if index % 16 == 9:
        out["logit_bias"] = {str(LINE_FEED): -4.0}
    if index % 16 == 11:
        out["cancel_after_tokens"] = rng.randint(1, 20)
    if index % 32 == 13:
        out["deadline_ms"] = rng.randint(200, 2000)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spacing-ms", type=int, default=20, help="mean time between arrivals")
    parser.add_argument("--sampled", type=float, default=0.25, help="share of the requests that sample")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    for index in range(args.requests):
        print(json.dumps(request(rng, index, max(1, args.spacing_ms), args.sampled)))


if __name__ == "__main__":
    main()
