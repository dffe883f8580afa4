"""The `plates` command, a supervised service on this machine, cameras, archives, benchmarks."""
