"""Statistics: one file each. A file dropped here is found, listed, documented and law-tested without another edit."""
