"""OpenCode's own store, read and never written: sessions and messages as its plugin would tell them."""
