"""Search over everything that a reader may see (§8): a query, its terms, ranks, and an answer."""
