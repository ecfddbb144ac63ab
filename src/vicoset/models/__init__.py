"""What differs between model families: visual rows, image identity, coordinates, refusals."""
