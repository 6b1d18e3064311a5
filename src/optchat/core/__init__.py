"""The pure core: records, trees, views, snapshots and context assembly, without I/O or clock."""
