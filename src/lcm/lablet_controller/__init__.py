"""The lablet controller: runs the labs of sessions on their workers."""
