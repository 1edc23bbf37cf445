"""Ask the client's model through sampling, and the client's user through forms."""
