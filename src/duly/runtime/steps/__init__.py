"""Durable steps of a job: what its code has done is recorded, and not done again.

Each kind of step is written once, as a conversation: a generator that yields what is to be done
(see `commands`, and for requests to the store `port`) and is sent the answer. `driving` carries it
out in a thread, `async_driving` on an event loop: blocking and async tasks share every rule.
"""
