"""Stand-ins and drivers for tests: a scripted model endpoint and the real host, driven headless."""
