"""The units of work between the pure core and a store; one a file."""
