"""The steps of Dockerfile in a Debian root, without a container engine: debootstrap makes it, bubblewrap enters it.

    python tests/image.py /tmp/root            as root; `make image-check`. A root that is there is entered as it is

Then the first evening of an instructor (`first_evening.sh`) and every solved lab run in it as the image's user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dockerfile_parse import DockerfileParser

HERE = Path(__file__).resolve().parents[1]


def main(root: Path) -> None:
    made = root.exists()
    user, folder, variables = "root", "/", {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

    def run(command: str) -> None:
        print(f"[{user}] {command}", flush=True)
        # the whole /proc, as with Docker's systempaths=unconfined: the sandbox of grading mounts one of its own
        enter = ["bwrap", "--bind", root, "/", "--dev", "/dev", "--bind", "/proc", "/proc"]
        enter += ["--clearenv", "--die-with-parent"]
        for folder_of_all in ("/tmp", "/dev/shm"):
            enter += ["--perms", "1777", "--tmpfs", folder_of_all]
        enter += ["--ro-bind", "/sys", "/sys", "--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
        certificates = os.environ.get("PIP_CERT")  # of a proxy
        if certificates:
            enter += ["--ro-bind", certificates, "/tmp/certificates", "--setenv", "PIP_CERT", "/tmp/certificates"]
        for name, value in variables.items():
            enter += ["--setenv", name, value]
        if user != "root":  # the folder as the image's user
            enter += ["setpriv", f"--reuid={variables['NB_UID']}", f"--regid={variables['NB_UID']}", "--clear-groups"]
        subprocess.run([*enter, "bash", "-c", f"cd {folder} && {command}"], check=True)

    for step in DockerfileParser(path=str(HERE / "Dockerfile")).structure:
        value = step["value"]
        for name in sorted(variables, key=len, reverse=True):
            value = value.replace(f"${name}", variables[name])
        match step["instruction"]:
            case "FROM" | "COPY" | "RUN" if made:
                continue
            case "FROM" if value.startswith("debian:"):
                suite = value.split()[0].removeprefix("debian:").removesuffix("-slim")
                subprocess.run(["debootstrap", "--variant=minbase", suite, root], check=True)
            case "ARG":
                name, _, default = value.partition("=")
                variables.setdefault(name, default)
            case "ENV":
                pairs = (pair.partition("=") for pair in value.split())
                variables |= {name: text.strip('"') for name, _, text in pairs}
            case "USER":
                user, variables["HOME"] = value, f"/home/{value}"
            case "WORKDIR":
                folder = value
            case "COPY":
                ignored = shutil.ignore_patterns(*(HERE / ".dockerignore").read_text().replace("**/", "").split())
                target = root / folder.lstrip("/")
                shutil.copytree(HERE, target, ignore=ignored)
                for path in (target, *target.rglob("*")):
                    os.chown(path, int(variables["NB_UID"]), int(variables["NB_UID"]), follow_symlinks=False)
            case "RUN":
                run(value)
    run("distlearn doctor")
    run("tests/first_evening.sh course ~/evening")
    run("jupyter execute course/source/*/lab*.ipynb")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
