"""Files of dataset repositories on the Hugging Face Hub: `hf://datasets/ORG/NAME[@REVISION]/PATH`, for reading.

Names, sizes and the commit come from the Hub's API through huggingface_hub, which the package tokenizers requires;
contents are read like objects of an HTTP store. A revision is resolved to its commit once per process, so all reads are
of one version. HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE have the meaning that huggingface_hub gives them.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from fastpack.errors import JobError

SCHEME = "hf"
_FORM = "hf://datasets/ORG/NAME/PATH, with @REVISION after NAME for another revision than main"


class HubPath(NamedTuple):
    """A file or folder of a dataset repository; path: without slashes at its ends."""

    repository: str
    revision: str
    path: str


class HubFile(NamedTuple):
    """A file in a listing; tag: the hash of its content."""

    path: str
    n_bytes: int
    tag: str


def is_hub(url: str) -> bool:
    """Return whether a URL names a file on the Hub."""
    return url[:5].lower() == f"{SCHEME}://"


def parse_hub_url(url: str) -> HubPath:
    """Return the parts of a URL; JobError for another form, and for repositories that do not contain datasets."""
    kind, _, rest = url.partition("://")[2].partition("/")
    names = rest.split("/", 2)
    if kind != "datasets" or len(names) < 2 or not names[0] or not names[1].partition("@")[0]:
        raise JobError(f"{url}: expected {_FORM}")
    name, _, revision = names[1].partition("@")
    return HubPath(f"{names[0]}/{name}", unquote(revision) or "main", names[2].strip("/") if len(names) > 2 else "")


def split_hub_url(url: str) -> tuple[str, str]:
    """Split a URL into that of the repository at its revision, and the path of the file."""
    where = parse_hub_url(url)
    return f"{SCHEME}://datasets/{where.repository}@{quote(where.revision, safe='')}", where.path


def content_root(url: str) -> tuple[str, dict[str, str]]:
    """Return the HTTP folder of a repository's files at the resolved commit, and the headers of requests."""
    where = parse_hub_url(url)
    sha = _commit(where.repository, where.revision, *_settings())
    with _hub_errors(url):
        from huggingface_hub import constants, get_token

        token = get_token()
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return f"{constants.ENDPOINT}/datasets/{where.repository}/resolve/{sha}", headers


def hub_file(url: str) -> HubFile:
    """Return size and tag of a file; raises FileNotFoundError, PermissionError, JobError, OSError."""
    found = _find(url)
    if not isinstance(found, HubFile):
        raise FileNotFoundError(errno.ENOENT, "No such file in the repository", url)
    return found


def is_hub_folder(url: str) -> bool:
    """Return whether a repository has this folder; raises as `hub_file`, except for a missing folder."""
    return isinstance(_find(url), str)


def hub_entries(url: str, *, recursive: bool) -> Iterator[HubFile | str]:
    """Yield the files in a folder, and the paths of its folders; nothing if the folder does not exist."""
    with contextlib.suppress(FileNotFoundError), _hub_errors(url):
        yield from _tree(_commit_of(url), recursive)


class _CommitPath(NamedTuple):
    """A path at a commit, which never changes, and the settings of the requests."""

    repository: str
    sha: str
    path: str
    settings: tuple[str | None, ...]


# What listings contained: the file, or the path of a folder. Of a listed folder, nothing else exists.
_known: dict[_CommitPath, HubFile | str] = {}
_listed: set[_CommitPath] = set()
_MAX_KNOWN = 200_000


def _commit_of(url: str) -> _CommitPath:
    where = parse_hub_url(url)
    return _CommitPath(
        where.repository, _commit(where.repository, where.revision, *_settings()), where.path, _settings()
    )


def _find(url: str) -> HubFile | str | None:
    """Return the file, or the path of the folder; None if there is neither."""
    at = _commit_of(url)
    if at in _known or not at.path:
        return _known.get(at, "")
    if at._replace(path=at.path.rpartition("/")[0]) in _listed:
        return None
    with _hub_errors(url):
        return _paths_info(at)


@functools.lru_cache(maxsize=4096)
def _paths_info(at: _CommitPath) -> HubFile | str | None:
    found = _api().get_paths_info(at.repository, [at.path], revision=at.sha, repo_type="dataset")
    return next((_entry(entry) for entry in found if entry.path == at.path), None)


@functools.lru_cache(maxsize=16)
def _tree(at: _CommitPath, recursive: bool) -> tuple[HubFile | str, ...]:
    tree = _api().list_repo_tree(
        at.repository, at.path or None, recursive=recursive, revision=at.sha, repo_type="dataset"
    )
    entries = tuple(map(_entry, tree))
    if len(_known) > _MAX_KNOWN:
        _known.clear()
        _listed.clear()
    _known.update((at._replace(path=entry if isinstance(entry, str) else entry.path), entry) for entry in entries)
    if entries:
        _listed.add(at)
    return entries


def _entry(entry: Any) -> HubFile | str:
    return _file(entry) if hasattr(entry, "size") else str(entry.path)


def _file(entry: Any) -> HubFile:
    return HubFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(library_name="fastpack")


def _settings() -> tuple[str | None, str | None]:
    return os.environ.get("HF_ENDPOINT"), os.environ.get("HF_TOKEN")


@functools.lru_cache(maxsize=64)
def _commit(repository: str, revision: str, *_settings: str | None) -> str:
    """Return the commit of a revision."""
    url = f"{SCHEME}://datasets/{repository}"
    with _hub_errors(url):
        found = _api().repo_info(repository, revision=revision, repo_type="dataset").sha
    if not found:
        raise JobError(f"{url}: the Hub names no commit for the revision {revision}")
    return str(found)


@contextlib.contextmanager
def _hub_errors(url: str) -> Iterator[None]:
    """Turn errors of huggingface_hub into those that other stores raise."""
    from huggingface_hub import constants
    from huggingface_hub import errors as kinds

    if constants.HF_HUB_OFFLINE:
        raise JobError(f"{url}: HF_HUB_OFFLINE is set, so nothing is read from the Hub")
    try:
        yield
    except kinds.GatedRepoError:
        raise PermissionError(
            errno.EACCES, "The repository is gated: accept its terms, and set HF_TOKEN", url
        ) from None
    except (kinds.RepositoryNotFoundError, kinds.RevisionNotFoundError):
        text = "No such repository or revision, or HF_TOKEN does not give access to it"
        raise FileNotFoundError(errno.ENOENT, text, url) from None
    except kinds.EntryNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such file or folder in the repository", url) from None
    except kinds.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        text = " ".join(str(error).split())[:200]
        if status in (401, 403):
            raise PermissionError(errno.EACCES, f"The Hub denies access: {text}", url) from None
        raise OSError(errno.EIO, text, url) from None
    except OSError:
        raise
    except Exception as error:  # the HTTP library's own errors
        raise OSError(errno.EIO, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", url) from None
