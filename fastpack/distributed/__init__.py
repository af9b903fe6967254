"""Run jobs on several machines: plans, tasks, ranks and Ray clusters."""
