"""OpenCode's own store, only read: sessions and messages as its plugin would tell them."""
