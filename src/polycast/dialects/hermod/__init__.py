"""The dialect `hermod`: a JSON header, directly followed by the payload. `session` has the grammar."""
