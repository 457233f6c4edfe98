"""Use cases over a store, shared by every edge: the command line now, HTTP and others later.

They take and return values, raise Duly's own errors, and print nothing. They block; an edge on an
event loop calls them in a thread.
"""
