"""Photos on their way in: forms and bodies, read within limits of bytes, memory and time."""
