"""Making summaries in the background: jobs, prompts, models and the checks on what comes back."""
