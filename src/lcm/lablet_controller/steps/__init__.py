"""What is done in each status: one pure function for each."""
