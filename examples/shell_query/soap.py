"""SOAP 1.1 in the cloud's dialect: envelopes out, elements in. It serves both the client and the simulated cloud.

Promises: what is written is well-formed XML with the cloud's namespaces, whatever text it carries; what cannot be read
is a `NotSoap`. Never reads a document type, so that a message cannot make it expand entities.
"""

import re
from xml.etree import ElementTree as ET

ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/"
PARTNER = "http://exacttarget.com/wsdl/partnerAPI"
OAUTH = "http://exacttarget.com"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
TYPE = f"{{{XSI}}}type"

for _prefix, _namespace in (("soap", ENVELOPE), ("", PARTNER), ("oauth", OAUTH), ("xsi", XSI)):
    ET.register_namespace(_prefix, _namespace)

# What XML 1.0 cannot carry, not even escaped.
_UNSPEAKABLE = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class NotSoap(ValueError):
    """These bytes are not a SOAP message."""


def node(name: str, *inside: ET.Element | str | None, kind: str | None = None) -> ET.Element:
    """An element of the cloud's namespace: `node("Filter", node("Property", "TaskID"), kind="SimpleFilterPart")`."""
    element = ET.Element(f"{{{PARTNER}}}{name}", {} if kind is None else {TYPE: kind})
    for one in inside:
        if isinstance(one, str):
            element.text = _UNSPEAKABLE.sub("\N{REPLACEMENT CHARACTER}", one)
        elif one is not None:
            element.append(one)
    return element


def envelope(content: ET.Element, token: str | None = None) -> bytes:
    """The message as it goes over the wire."""
    root = ET.Element(f"{{{ENVELOPE}}}Envelope")
    if token is not None:
        ET.SubElement(ET.SubElement(root, f"{{{ENVELOPE}}}Header"), f"{{{OAUTH}}}fueloauth").text = token
    ET.SubElement(root, f"{{{ENVELOPE}}}Body").append(content)
    message: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return message


def fault(code: str, text: str) -> bytes:
    """What is said instead of an answer."""
    element = ET.Element(f"{{{ENVELOPE}}}Fault")
    # The children of a fault have no namespace: SOAP 1.1, 4.4.
    ET.SubElement(element, "faultcode").text = code
    ET.SubElement(element, "faultstring").text = text
    return envelope(element)


def read(message: bytes) -> tuple[ET.Element, str | None]:
    """The one thing in the body, its names without namespaces, and the token of the header."""
    if b"<!DOCTYPE" in message:
        raise NotSoap("a SOAP message has no document type")
    try:
        root = ET.fromstring(message)  # noqa: S314 - no document type, so nothing to expand
    except (ET.ParseError, ValueError, LookupError) as error:
        raise NotSoap(f"this is not XML: {error}") from None
    for one in root.iter():
        one.tag = one.tag.rpartition("}")[2]
    content = root.find("Body/*")
    if root.tag != "Envelope" or content is None:
        raise NotSoap(f"<{root.tag}> is not a SOAP envelope with a body")
    return content, root.findtext("Header/fueloauth")


def text(element: ET.Element, path: str) -> str:
    """What stands there, trimmed; an empty text where nothing does."""
    return (element.findtext(path) or "").strip()
