"""The daemon: takes rows and states from many senders, judges them as one, and shows what it found over HTTP."""
