"""Access control: identities, rules and tokens, and the guard of each connection."""
