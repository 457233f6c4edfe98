"""Pure rules: functions of values and the time they are given. No I/O, no clock."""
