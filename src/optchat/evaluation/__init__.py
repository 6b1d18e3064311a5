"""How well recall finds: evaluation files through the real import, store and search."""
