"""What `plates bench` measures with: a load client, the service's processes, reports."""
