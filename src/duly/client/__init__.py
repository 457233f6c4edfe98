"""What application code holds: tasks, jobs, submissions."""
