"""The edge towards clients: connections and their limits, access control, error responses."""
