"""Groups of words for cohesion and separation, English and Chinese, as data with their origin; files of users too."""

from embedwatch.lexicons.lexicon import RELATIONS, Lexicon, WordGroup
from embedwatch.lexicons.reading import SHIPPED, load_lexicon, load_lexicons

__all__ = ["RELATIONS", "SHIPPED", "Lexicon", "WordGroup", "load_lexicon", "load_lexicons"]
