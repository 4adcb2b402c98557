"""The dialect `fanout`: lines, on one listener for clients and one for controllers. `session` has the grammar."""
