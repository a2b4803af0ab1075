"""The canary: fixed texts that are embedded once, and again to know whether it is still the same space.

```
texts ── embed several times, other orders and batches ──> Canary: vectors, noise floor ── save ──> file
file ── embed again ──> PairBatch (then, now) ──> Statistic `canary` ──> Snapshot ──> Check `canary` ──> Verdict
```
"""

from embedwatch.canary.canary import Canary
from embedwatch.canary.embedding import Embed
from embedwatch.canary.floor import Floor
from embedwatch.canary.outcome import Outcome
from embedwatch.canary.provider import Provider

__all__ = ["Canary", "Embed", "Floor", "Outcome", "Provider"]
