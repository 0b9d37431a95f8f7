"""The lablet controller: will run labs on workers. It runs nothing yet."""
