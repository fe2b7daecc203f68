"""The scripts that asv's pages need, shipped here so that no page loads anything from elsewhere.

``vendor/manifest.json`` says of each npm package its version, its licence, the integrity
hash of its archive, and of each file where it lies in the package and its SHA-256. The
licences are copied into the site beside the scripts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pages.errors import VendoredError

#: Where the packages lie, one folder each.
FOLDER = Path(__file__).resolve().parent / "vendor"

MANIFEST = "manifest.json"

#: Folder of the packages in the site.
SITE_FOLDER = "vendor"


@dataclass(frozen=True)
class Shipped:
    """One shipped file.

    Attributes
    ----------
    package, name : str
    sha256 : str
        In hexadecimal digits.
    """

    package: str
    name: str
    sha256: str

    @property
    def path(self) -> str:
        """Where it lies under the vendored folder, and under the site's."""
        return f"{self.package}/{self.name}"


def manifest(folder: Path = FOLDER) -> list[Shipped]:
    """List what is shipped, in the manifest's order."""
    packages = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return [
        Shipped(package, name, file["sha256"])
        for package, entry in packages.items()
        for name, file in entry["files"].items()
    ]


def copy_into(site: Path, folder: Path = FOLDER) -> list[str]:
    """Copy every shipped file into a site; list their paths in it.

    Raises
    ------
    VendoredError
        A file is missing, or differs from the manifest's hash.
    """
    copied = []
    for shipped in manifest(folder):
        target = site / SITE_FOLDER / shipped.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_read(folder, shipped))
        copied.append(f"{SITE_FOLDER}/{shipped.path}")
    return copied


def _read(folder: Path, shipped: Shipped) -> bytes:
    path = folder / shipped.path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise VendoredError(f"{path} cannot be read: {error}; check it out again") from error
    if hashlib.sha256(content).hexdigest() != shipped.sha256:
        raise VendoredError(
            f"{path} is not the file of its package (SHA-256 differs from {MANIFEST}); "
            "check it out again"
        )
    return content
