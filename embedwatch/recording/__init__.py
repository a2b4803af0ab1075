"""What the `jsonl` sink wrote beside a run, read back as the course of each Space. Loads no torch."""

from embedwatch.recording.lines import Damage
from embedwatch.recording.reader import MOST_LAST, RECORDING_FILE, Recording, read_recording
from embedwatch.recording.recorded import Recorded
from embedwatch.recording.traces import Moment, Spell, Trace

__all__ = [
    "MOST_LAST",
    "RECORDING_FILE",
    "Damage",
    "Moment",
    "Recorded",
    "Recording",
    "Spell",
    "Trace",
    "read_recording",
]
