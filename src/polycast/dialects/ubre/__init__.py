"""The dialect `ubre`: publications and requests, in JSON or binary. `session` has the grammar."""
