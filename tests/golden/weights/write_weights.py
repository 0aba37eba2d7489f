#!/usr/bin/env python3
"""Writes weight files with torch, safetensors and transformers, for the tests of worker/checkpoint.

    write_weights.py --out tests/golden/weights

  tensors/zip.bin, tensors/legacy.bin
      a state dict (OrderedDict with _metadata) with every dtype, transposed, strided, expanded, scalar
      and empty tensors, two tensors in one storage, a Parameter: torch.save in the ZIP format and in
      the one before torch 1.6; *_protocol4.bin: as a plain dict with pickle protocol 4
  tensors/expected.safetensors
      its floating-point tensors, converted to float32 by torch
  tensors/malicious_*.bin
      a state dict with an object that calls os.system when it is unpickled
  models/safetensors, models/torch
      a BertForSequenceClassification of save_pretrained: model.safetensors, and with
      safe_serialization=False; *_sharded: with max_shard_size=1500; torch_legacy: before torch 1.6
  models/pretrained
      a BertForPreTraining with the same encoder and the names of the published bert-base-uncased:
      LayerNorm.gamma, LayerNorm.beta, cls.*, position_ids

The values are seeded; two runs with the same
versions write the same tensors (torch adds an identifier to each ZIP archive).
"""

import argparse
import collections
import os
import pathlib
import shutil

import safetensors.torch
import torch
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification


def tensors():
    """Every dtype and layout that the reader knows, in a state dict with metadata."""
    torch.manual_seed(1)
    base = torch.randn(6, 4)
    shared = torch.arange(10, dtype=torch.float32)
    state = torch.nn.Linear(3, 2).state_dict()  # an OrderedDict with _metadata: weight, bias
    state["float16"] = torch.tensor([1.0, -2.0, 65504.0, 2.0**-14, 2.0**-24, -0.0], dtype=torch.float16)
    state["bfloat16"] = torch.tensor([[1.5, -123.5], [3.0e38, 1.0e-38]], dtype=torch.bfloat16)
    state["float64"] = torch.tensor([0.1, -1.0e30, 1.0e-30], dtype=torch.float64)
    state["transposed"] = base.t()
    state["column"] = base[:, 1]
    state["steps"] = base[1:5:2, 1:4:2]
    state["permuted"] = torch.randn(2, 3, 4).permute(2, 0, 1)
    state["permuted_half"] = torch.randn(3, 2).to(torch.float16).t()
    state["expanded"] = torch.tensor([[1.25], [-7.0]]).expand(2, 3)
    state["scalar"] = torch.tensor(42.5)
    state["empty"] = torch.zeros(0, 4)
    state["shared_first"] = shared[:6]
    state["shared_last"] = shared[4:].view(2, 3)
    state["parameter"] = torch.nn.Parameter(torch.randn(3))
    state["integers"] = torch.arange(5)
    state["flags"] = torch.tensor([True, False])
    return state


def write_tensors(out):
    state = tensors()
    plain = dict(state)
    new, old = {}, {"_use_new_zipfile_serialization": False}
    for name, value, options in (
        ("zip.bin", state, new),
        ("zip_protocol4.bin", plain, {**new, "pickle_protocol": 4}),
        ("legacy.bin", state, old),
        ("legacy_protocol4.bin", plain, {**old, "pickle_protocol": 4}),
    ):
        torch.save(value, out / name, **options)
    floats = {
        # expand() and the parameter are copied, so that each tensor has a storage of its own.
        name: value.detach().to(torch.float32).contiguous().clone()
        for name, value in state.items()
        if value.is_floating_point()
    }
    safetensors.torch.save_file(floats, str(out / "expected.safetensors"))


class Command:
    """Runs a command where a pickle is loaded without restrictions."""

    def __reduce__(self):
        return os.system, ("true",)


def write_malicious(out):
    state = {"weight": torch.ones(2), "command": Command()}
    torch.save(state, out / "malicious_zip.bin")
    torch.save(state, out / "malicious_legacy.bin", _use_new_zipfile_serialization=False)


def write_models(out):
    config = BertConfig(
        vocab_size=12,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=8,
        num_labels=3,
    )
    torch.manual_seed(2)
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():  # no zero bias, no layer norm of 1
            parameter.copy_(torch.randn_like(parameter))
    shards = 1500  # bytes
    model.save_pretrained(out / "safetensors")
    model.save_pretrained(out / "safetensors_sharded", max_shard_size=shards)
    model.save_pretrained(out / "torch", safe_serialization=False)
    model.save_pretrained(out / "torch_sharded", safe_serialization=False, max_shard_size=shards)
    for path in out.glob("*/config.json"):
        path.unlink()
    (out / "torch_legacy").mkdir()
    legacy = {"_use_new_zipfile_serialization": False}
    torch.save(model.state_dict(), out / "torch_legacy" / "pytorch_model.bin", **legacy)

    # As the published bert-base-uncased: another head, older names of layer norm, a buffer.
    pretrained = BertForPreTraining(config)
    pretrained.bert.load_state_dict(model.bert.state_dict())
    state = collections.OrderedDict()
    for name, value in pretrained.state_dict().items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        state[name.replace("LayerNorm.bias", "LayerNorm.beta")] = value
    state["bert.embeddings.position_ids"] = torch.arange(8).view(1, 8)
    (out / "pretrained").mkdir()
    torch.save(state, out / "pretrained" / "pytorch_model.bin", **legacy)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    for name in ("tensors", "models"):
        shutil.rmtree(out / name, ignore_errors=True)
        (out / name).mkdir()
    write_tensors(out / "tensors")
    write_malicious(out / "tensors")
    write_models(out / "models")
    for path in out.rglob("*"):
        if path.is_file() and path.suffix in (".safetensors", ".bin", ".json"):
            path.chmod(0o644)


if __name__ == "__main__":
    main()
