"""An app's own tasks, schedules and steps in virtual time, in one thread and in memory."""
