"""Which of two replicas acts, and whether this one may write: the Lease and what it allows."""
