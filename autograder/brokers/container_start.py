"""The part of `containers` that needs Docker's SDK: images fetched, containers started.

Kept apart because importing the SDK takes a third of a second, which nobody pays who has his
servers from elsewhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from autograder.brokers import container_engine
from autograder.brokers.container_engine import Engine
from autograder.brokers.container_images import Image
from autograder.brokers.process import Patience
from autograder.model import GraderError

_TELL_EVERY_S = 5.0


class EngineError(Exception):
    """The engine refused. The text is its own."""


def ensure_image(engine: Engine, image: str, patience: Patience) -> None:
    """Fetch an image that is not here yet, and say how far it is.

    Raises
    ------
    GraderError
        It is not here, and its registry cannot be reached or does not have it.
    process.CalledOffError
        `patience` was called off.
    """
    if container_engine.has_image(engine.endpoint, image):
        return
    patience.tell(f"Fetching the image {image}, once. A slow network takes minutes for it.")
    with _client(engine) as client:
        try:
            # https://docs.docker.com/reference/api/engine/version/v1.50/#tag/Image/operation/ImageCreate
            for text in _progress(client.api.pull(image, stream=True, decode=True), patience):
                patience.tell(f"Fetching the image {image}: {text}.")
        except (DockerException, requests.RequestException, EngineError) as error:
            raise GraderError(
                f"The image {image} is not on this machine and cannot be fetched: {_said(error)}.",
                next_command=container_engine.pull_command(engine, image),
            ) from error


def run(
    engine: Engine,
    image: Image,
    name: str,
    ports: Mapping[int, int],
    *,
    labels: Mapping[str, str],
    reaped: bool,
) -> None:
    """Start a container of this name; `ports` are those inside, and outside on the loopback.

    `reaped` starts testcontainers' own cleaner (Ryuk) with it. Raises `EngineError`.
    """
    testcontainers_config.ryuk_disabled = not reaped
    container: DockerContainer | None = None
    try:
        container = DockerContainer(
            image.name, docker_client_kw={"environment": _environment(engine)}, name=name
        )
        # testcontainers would publish to the whole network; Docker's SDK takes an address, too
        places = {f"{inside}/tcp": ("127.0.0.1", outside) for inside, outside in ports.items()}
        container.ports.update(cast("Any", places))
        container.with_envs(**image.variables(ports[image.port]))
        if image.command:
            container.with_command(list(image.command))
        for path, text in image.files.items():
            container.with_copy_into_container(text.encode(), path)
        container.with_kwargs(labels=dict(labels), detach=True)
        container.start()
    except (DockerException, requests.RequestException, OSError, RuntimeError) as error:
        raise EngineError(_said(error)) from error
    finally:
        if container is not None:
            container.get_docker_client().client.close()


def _environment(engine: Engine) -> dict[str, str]:
    return dict(os.environ) | {"DOCKER_HOST": engine.endpoint}


@contextmanager
def _client(engine: Engine) -> Iterator[docker.DockerClient]:
    client = docker.from_env(environment=_environment(engine), timeout=600)
    try:
        yield client
    finally:
        client.close()


def _progress(events: Iterable[Mapping[str, Any]], patience: Patience) -> Iterator[str]:
    """How far a pull is, every few seconds. Raises `EngineError` for a pull that fails on its way."""
    layers: dict[str, tuple[int, int]] = {}
    told, refusal = time.monotonic(), ""
    for event in events:
        patience.wait(0)
        refusal = refusal or str(event.get("error", ""))  # and read on: the SDK closes at the end
        detail = event.get("progressDetail") or {}
        if event.get("status") == "Downloading" and "total" in detail:
            layers[str(event.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
        if layers and time.monotonic() - told >= _TELL_EVERY_S:
            told = time.monotonic()
            done, total = (sum(each[place] for each in layers.values()) / 1e6 for place in (0, 1))
            yield f"{done:.0f} of {total:.0f} MB"
    if refusal:
        raise EngineError(refusal)


def _said(error: Exception) -> str:
    """An error in one line, without the SDK's addresses and quotes around it."""
    if isinstance(error, NotFound):
        text = f"the registry does not have it ({error.explanation})"
    elif isinstance(error, APIError):
        text = str(error.explanation or error)
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split()).rstrip(".")
