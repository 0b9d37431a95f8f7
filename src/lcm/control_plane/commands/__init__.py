"""The only writers of records. Each command loads, decides with the domain, and compares and sets."""
