"""Measuring recall: session files and LoCoMo through the real ingestion, store and search."""
