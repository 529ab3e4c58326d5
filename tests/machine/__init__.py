"""The whole controller among everything that goes wrong: parts of the state machine's test."""
