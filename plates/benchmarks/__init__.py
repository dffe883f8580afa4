"""What `plates bench` measures with: a load generator, processes, statistics, reports."""
