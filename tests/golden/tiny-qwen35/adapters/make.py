#!/usr/bin/env python3
"""Makes this folder's adapters and their reference data: PEFT writes them, transformers in float32 on a CPU runs the model with them.
needs: torch==2.15.0 transformers==5.24.0 peft==0.21.2 safetensors numpy      usage: make.py FOLDER_OF_TINY_QWEN35"""
import copy
import json
import os
import sys

import numpy
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

SEED = 19
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SPECS = {"all-r4": dict(r=4, lora_alpha=8, target_modules=ALL), "qo-r8": dict(r=8, lora_alpha=16, target_modules=["q_proj", "o_proj"])}


@torch.no_grad()
def logits(model, ids):
    return model(torch.tensor([ids])).logits[0].float()


@torch.no_grad()
def greedy(model, ids, n):
    out, margin, past, current = [], [], None, torch.tensor([ids])
    for _ in range(n):
        r = model(current, past_key_values=past, use_cache=True)
        past = r.past_key_values
        best, at = r.logits[0, -1].float().topk(2)
        out.append(int(at[0]))
        margin.append(round(float(best[0] - best[1]), 5))
        current = at[:1].view(1, 1)
    return out, margin


def golden(model, vocab):
    random = numpy.random.default_rng(SEED)
    cases, tensors = [], {}
    for k, n in enumerate((1, 7, 33, 100, 260)):
        ids = [int(x) for x in random.integers(6, vocab, n)]
        l = logits(model, ids)
        at = sorted({0, n // 3, n // 2, n - 1})
        tensors[f"logits.{k}"] = l[at].contiguous()
        ids_after, margin = greedy(model, ids, 40)
        cases.append({"prompt": ids, "logit_positions": at, "logit_std": round(float(l.std()), 4), "greedy": ids_after, "margin": margin})
    return cases, tensors


def main():
    folder = sys.argv[1]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for name, spec in SPECS.items():
        torch.manual_seed(SEED)
        adapted = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(**spec, task_type="CAUSAL_LM"))
        generator = torch.Generator().manual_seed(SEED + len(name))
        for at, p in adapted.named_parameters():
            if "lora_" in at:
                p.data = (torch.randn(p.shape, generator=generator) * (0.6 / p.shape[1] ** 0.5)).to(torch.bfloat16).float()
        adapted.eval()
        to = f"{folder}/adapters/{name}"
        adapted.save_pretrained(to)
        file = f"{to}/adapter_model.safetensors"
        save_file({k: v.to(torch.bfloat16) for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
        config = json.load(open(f"{to}/adapter_config.json"))
        config["base_model_name_or_path"] = "tiny-qwen35"
        config["target_modules"] = sorted(config["target_modules"])
        json.dump(config, open(f"{to}/adapter_config.json", "w"), indent=1)
        if os.path.exists(f"{to}/README.md"):
            os.remove(f"{to}/README.md")
        cases, tensors = golden(adapted, model.config.vocab_size)
        ids = cases[3]["prompt"]
        moved = float((logits(adapted, ids)[-1] - logits(model, ids)[-1]).abs().max())
        assert moved > 0.5, moved
        print(name, "moves logits by", round(moved, 2))
        json.dump({"cases": cases}, open(f"{to}/golden.json", "w"), separators=(",", ":"))
        save_file(tensors, f"{to}/golden.safetensors")


if __name__ == "__main__":
    main()
