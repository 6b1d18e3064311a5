"""optchat: a shared, hierarchical memory for coding agents."""

__version__ = "0.1.0"
