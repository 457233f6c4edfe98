"""The engine for a fleet: PostgreSQL 14 or later, psycopg 3."""
