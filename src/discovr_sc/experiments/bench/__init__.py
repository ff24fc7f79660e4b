"""Time and memory: what is behind ``discovr-sc bench``."""
