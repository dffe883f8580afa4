"""What people run: the `plates` command, a service on this machine, archives, benchmarks."""
