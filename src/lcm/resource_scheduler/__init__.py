"""The resource scheduler: places lablet sessions on workers, and requests the workers that are missing."""
