"""Work in parts that many machines share: plans and their tasks, and who runs them."""
