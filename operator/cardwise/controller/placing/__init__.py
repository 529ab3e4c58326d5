"""From a question to cards: the decision, the hold, and the one write that binds or pins."""
