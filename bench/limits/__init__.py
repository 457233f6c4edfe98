"""The bare engine: loops that make the same durable writes as Duly, and nothing else.

Nothing here imports Duly. The tables have the columns that a plain job uses, under the names that
Duly gives them.
"""
