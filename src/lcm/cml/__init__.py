"""Shared by every client of CML: TLS with a pinned certificate, logins, and the translation of errors."""
