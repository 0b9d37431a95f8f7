"""The resource scheduler: will place lablet instances on workers. It places nothing yet."""
