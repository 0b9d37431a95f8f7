"""A logged-in client of a worker's CML: Cisco's own `virl2_client`, if it is installed.

with Lcm() as lcm:
    cml = client_of(lcm.workers.cml_access("ccna"), "admin", password)
    print(cml.all_labs())
"""

import hashlib
import ssl
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lcm.client.errors import ClientError, Unreachable

if TYPE_CHECKING:
    from lcm.rest.schemas import CmlAccess

TIMEOUT_SECONDS: Final = 10.0


class CertificateChanged(ClientError):
    """The server has another certificate than the one that LCM has pinned."""


def pinned_certificate(access: "CmlAccess") -> str:
    """Return the certificate of the server as PEM. Raises CertificateChanged if it is not the pinned one."""
    try:
        pem = ssl.get_server_certificate((access.host, access.port), timeout=TIMEOUT_SECONDS)
    except OSError as error:
        raise Unreachable(f"no answer from {access.url}: {error}", was_sent=False) from None
    if hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() != access.certificate_sha256:
        raise CertificateChanged(
            f"{access.url} has another certificate than the one that LCM has pinned for this worker"
        )
    return pem


def client_of(access: "CmlAccess", username: str, password: str) -> Any:
    """Return a `ClientLibrary` that accepts the pinned certificate alone, whichever name it has."""
    trust: ssl.SSLContext | bool = True
    if access.certificate_sha256 is not None:
        trust = ssl.create_default_context(cadata=pinned_certificate(access))
        trust.check_hostname = False  # certificates that CML makes do not name their address
    library: Any = import_module("virl2_client")
    return library.ClientLibrary(access.url, username, password, ssl_verify=trust)
