"""Which stream runs what and when, and which storage is whose: ops of a lowered function, scheduled
by measured durations and occupancies (docs/design/streams.md)."""
