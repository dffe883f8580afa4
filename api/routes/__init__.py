"""The gateway's own routes, thin layers over `uploads`, `reading` and `answers`."""
