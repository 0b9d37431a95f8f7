"""What people and controllers do with lablet sessions."""
