"""Whether the process in this container answers: one of the four has its port open, with TLS or without."""

import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

PORTS = (8080, 8081, 8082, 8083)

OWN = ssl.create_default_context()
"""The certificate has the name that others use, not the address that is asked here; no secret is sent."""
OWN.check_hostname = False
OWN.verify_mode = ssl.CERT_NONE


def main() -> int:
    for port in PORTS:
        for connection in (
            HTTPConnection("127.0.0.1", port, timeout=2),
            HTTPSConnection("127.0.0.1", port, timeout=2, context=OWN),
        ):
            try:
                connection.request("GET", "/health")
                return 0 if connection.getresponse().status == 200 else 1
            except (OSError, HTTPException):  # nothing listens there, or it speaks the other scheme
                continue
    return 1


sys.exit(main())
