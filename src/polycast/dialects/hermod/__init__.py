"""The dialect `hermod`: a JSON header, directly followed by the payload. `session` tells the whole of it."""
