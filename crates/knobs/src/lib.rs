//! Changes of a host's settings: each is written to a journal before it is made, and undone from it.
