"""OpenCode: how its configuration, messages and store are read, and how optchat gets into it."""
