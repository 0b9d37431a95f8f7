"""What the serial console of a node shows."""

from lcm.simulator.cml.lab import BOOTED, POWERED, Node


def console_text(node: Node) -> str:
    """Everything since the node was started; nothing from a node that is off."""
    if node.state not in POWERED:
        return ""
    lines = [f"Booting {node.definition.label}", f"{node.given_cpus} CPUs, {node.given_ram} MiB"]
    if node.state is BOOTED:
        prompt = f"{node.label}>" if node.definition.has_loopback else f"{node.label} login:"
        lines += ["", node.definition.boot_text, prompt]
    return "\n".join(lines)
