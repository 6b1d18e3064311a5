"""The one process that owns a data directory: socket, routes, wire types and client."""
