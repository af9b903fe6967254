"""Jobs on several machines: plans and their tasks, and the ranks or the Ray cluster that run them."""
