"""sentence-transformers in its documented way, on torch: encode() with batches of 32; it sorts by length itself."""
import torch
from sentence_transformers import SentenceTransformer

model = None


def load(options):
    global model
    torch.set_num_threads(options["threads"])
    model = SentenceTransformer(options["model"], device="cpu", model_kwargs={"dtype": torch.float32})


def embed(texts):
    return model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
