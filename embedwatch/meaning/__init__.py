"""What words mean, as a space holds it: groups that belong together, beside pairs that do not.

```
lexicons ── groups ──┐
                     ├─> study ── cosines, AUC, chance ──> measuring ── measurements, exhibits
words and vectors ───┘
```

Words come as rows of a token table, as texts, as tokens within sentences (`embedwatch.loading.word_vectors`), or as
rows that have names (`rows`).
"""
