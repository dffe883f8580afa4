"""How the weights are made: data, losses, loops."""
