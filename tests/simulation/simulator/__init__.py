"""Duly's own state machine under faults, in virtual time: one seed is one run, exactly.

Several nodes with all their roles share one store in memory and one event loop with their clients.
Whatever they ask of the store travels for a random time, and may be lost on the way there or back;
nodes crash between any two statements, stand still, drain, lose their jobs without being told, and
have clocks that are too fast or too slow. At the end the faults stop, the nodes get time to settle,
and duly.testing.check_history judges.
"""
