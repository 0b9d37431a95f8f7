"""The one way the simulated EC2 says no."""


class Ec2Error(Exception):
    """A request EC2 answers with an error code, as it is written on the wire."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
