"""Uploads: reads forms and bodies within limits of size, memory and time."""
