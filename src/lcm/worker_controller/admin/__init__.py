"""What operators see of the process: `/admin`, statistics, Prometheus metrics."""
