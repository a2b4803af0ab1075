"""Models of Hugging Face and sentence-transformers, opened for examination. The sole importer of transformers.

```
name or path ── find ──> directory ──┬─ blueprint: config.json, the class on the meta device, names of its tables
                                     ├─ weights, tables: safetensors headers, rows by slices
                                     ├─ tokens: the tokenizer
                                     └─ modules, pipeline: modules.json as data
                                              │
Subject ── encode ── recipe ──> TextEncoder: backbone (weights, strictly), pooling, steps
```

A directory is untrusted: nothing in it is run or unpickled, and no hub is asked. transformers itself is imported when a
model is opened, so that importing this package is cheap.
"""

from embedwatch.loading.subject import Subject, load_subject

__all__ = ["Subject", "load_subject"]
