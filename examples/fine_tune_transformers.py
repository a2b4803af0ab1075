"""Fine-tune a Hugging Face model, watched: one argument more than without.

python examples/fine_tune_transformers.py ./my-model texts.txt    a folder or a cached name; one text a line
embedwatch show fine-tuned                                        the course of the training, afterwards

`examples/stdlib_sentences.py texts.txt` makes some texts; any causal language model of transformers will do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import transformers

from embedwatch.integrations.transformers import EmbedwatchCallback

LENGTH = 64


def main() -> None:
    """Fine-tune, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--out", default="fine-tuned")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=5e-5)
    options = parser.parse_args()

    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model)
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    data = [tokenizer(line, truncation=True, max_length=LENGTH) for line in lines if line.strip()]

    # The only lines about embedwatch. Findings go to Python's log, windows to OUT/embedwatch.jsonl.
    callback = EmbedwatchCallback(every=5, window=20, tokenizer=tokenizer)

    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=options.out,
            max_steps=options.steps,
            learning_rate=options.rate,
            per_device_train_batch_size=8,
            logging_steps=5,
            report_to="none",
        ),
        train_dataset=data,
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[callback],
    )
    trainer.train()

    monitor = callback.monitor
    for verdict in monitor.findings if monitor else []:  # the gravest first
        print(verdict.status, verdict.title, "|", verdict.reason, "→", verdict.remedy)
    print(f"{monitor}\nembedwatch show {options.out}")


if __name__ == "__main__":
    main()
