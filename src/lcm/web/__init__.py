"""What every process that answers HTTP shares: the server itself and the shape of its errors."""
