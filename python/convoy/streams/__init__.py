"""Schedule the ops of a lowered function on streams by measured durations and occupancies, and plan
their storage (docs/design/streams.md)."""
