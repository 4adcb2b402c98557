"""The dialect `simplest`: three commands on a plain stream. `session` has the grammar."""
