"""Several processes on a real etcd."""
