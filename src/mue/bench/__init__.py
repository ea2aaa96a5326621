"""How fast, beside how fast it could be: `mue bench`."""
