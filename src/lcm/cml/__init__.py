"""What every client of CML shares: TLS with a pinned certificate, and the translation of errors."""
