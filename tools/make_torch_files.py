"""Small files as torch.save writes them, and some that must be refused: __test__/fixtures/torch.

Usage: python tools/make_torch_files.py OUT    (the same bytes on every run, but for legacy.pt)
"""

import json
import pathlib
import sys
import zipfile

import torch
import transformers
from safetensors.torch import save_file

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(7)


class Runs:
    """A pickle that would run a command."""

    def __reduce__(self):
        import os

        return os.system, ("echo a pickle was run",)


linear = torch.nn.Linear(4, 3)
with torch.no_grad():
    linear.weight.copy_(torch.arange(12.0).reshape(3, 4) / 8)
    linear.bias.copy_(torch.tensor([-1.0, 0.5, 2.0]))
weight, bias = linear.weight.detach(), linear.bias.detach()
flat = torch.arange(20.0)

files = {
    # A module's own state dict, with _metadata, as BGE-M3's colbert_linear.pt.
    "linear.pt": linear.state_dict(),
    # Parameters instead of tensors.
    "parameters.pt": dict(linear.named_parameters()),
    # Types, two views of one storage, numbers beside the tensors, scalars and empty tensors.
    "kinds.pt": {
        "half": weight.half(),
        "bfloat16": weight.bfloat16(),
        "double": weight.double(),
        "long": torch.arange(5),
        "view": flat[4:16].reshape(3, 4),
        "rest": flat[16:],
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
        "one_row": flat.reshape(5, 4)[1:2],
        "step": 7,
        "name": "linear",
    },
    "transposed.pt": {"weight": weight.t()},
    "nested.pt": {"state_dict": {"weight": weight}},
    "nan.pt": {"weight": torch.tensor([1.0, float("nan")])},
    "runs.pt": {"weight": weight, "extra": Runs()},
    "module.pt": linear,
}
for name, content in files.items():
    torch.save(content, out / name)
torch.save(linear.state_dict(), out / "legacy.pt", _use_new_zipfile_serialization=False)


def rewritten(name, change, compress=zipfile.ZIP_STORED):
    """linear.pt with other entries."""
    entries = {}
    with zipfile.ZipFile(out / "linear.pt") as archive:
        for entry in archive.namelist():
            entries[entry.split("/", 1)[1]] = archive.read(entry)
    change(entries)
    with zipfile.ZipFile(out / name, "w", compress) as archive:
        for entry, content in entries.items():
            archive.writestr(zipfile.ZipInfo(f"linear/{entry}"), content, compress)


rewritten("compressed.pt", lambda entries: None, zipfile.ZIP_DEFLATED)
rewritten("big_endian.pt", lambda entries: entries.update(byteorder=b"big"))
rewritten("short_storage.pt", lambda entries: entries.update({"data/0": entries["data/0"][:-4]}))
rewritten("no_storage.pt", lambda entries: entries.pop("data/0"))
rewritten("no_pickle.pt", lambda entries: entries.pop("data.pkl"))

# A whole checkpoint, as transformers wrote it before safetensors, and the same as safetensors.
# Its vocabulary is that of the tiny BERTs.
config = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 12,
          "vocab_size": 219, "max_position_embeddings": 6, "type_vocab_size": 2}
state = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config)).state_dict()
(out / "bert").mkdir(exist_ok=True)
(out / "bert" / "config.json").write_text(json.dumps(config, indent=2) + "\n")
torch.save(state, out / "bert" / "pytorch_model.bin")
save_file(state, out / "bert" / "same.safetensors")
