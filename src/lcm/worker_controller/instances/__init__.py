"""EC2 instances: launch them once, observe them in batches."""
