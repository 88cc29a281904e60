"""Lower bounds on the steps and the rounds of a demand, each with its proof."""
