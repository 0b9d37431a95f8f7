"""The simulator: AWS on the real wire protocol and one CML server per EC2 instance.

Nothing in LCM knows whether it talks to this package or to the real thing. Start reading in
`main.py`; `aws/` runs in a child process of its own (`aws_server.py`), `cml/` in the process that
calls `main.run`. Every server listens on loopback addresses only.
"""
