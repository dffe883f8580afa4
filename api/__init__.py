"""How people reach the plate reader: gateway, command line, embedded Triton."""
