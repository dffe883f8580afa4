"""The gateway's own routes. Each is thin: the work is in uploads, reading and answers."""
