"""The gateway: photos and answers over HTTP, before a Triton that reads them."""
