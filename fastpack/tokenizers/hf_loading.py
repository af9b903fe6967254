"""Read a tokenizer.json and its companion files as the fast tokenizer classes of transformers 4.x do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from fastpack.tokenizers.hf_classes import CLASS_OF_MODEL, SPECIAL_TOKENS, TokenizerClass, tokenizer_class

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend


@dataclass
class LoadedTokenizer:
    """A tokenizer with the defaults of its class and its files.

    tokens: special token attribute -> token. cleans_up: remove spaces before punctuation from decoded text. file: the
    tokenizer.json that describes the backend, truncation and padding aside; None if its class or files changed it.
    """

    backend: Backend
    tokens: dict[str, Any]
    padding_side: str = "right"
    truncation_side: str = "right"
    model_max_length: float = 1e30
    pad_type_id: int = 0
    cleans_up: bool = False
    file: str | None = None


def load_file(path: str, class_name: str | None = None) -> LoadedTokenizer:
    """Load a tokenizer.json as written or, with `class_name`, as that class loads it without other files."""
    if class_name is not None:
        return _load(path, tokenizer_class(class_name), {})
    backend = _read_backend(path)
    padding, truncation = backend.padding or {}, backend.truncation or {}
    tokens = {"pad_token": padding["pad_token"]} if padding else {}
    if isinstance(unk_token := getattr(backend.model, "unk_token", None), str):
        tokens["unk_token"] = unk_token
    return LoadedTokenizer(
        backend,
        tokens,
        padding_side=padding.get("direction", "right"),
        truncation_side=truncation.get("direction", "right"),
        pad_type_id=padding.get("pad_type_id", 0),
        file=path,
    )


def load_directory(path: str) -> LoadedTokenizer:
    """Load a directory with tokenizer.json and, where they exist, tokenizer_config.json and its companions."""
    file = os.path.join(path, "tokenizer.json")
    if not os.path.isfile(file):
        raise FileNotFoundError(f"{file} is not there: only tokenizers saved with a tokenizer.json can be read")
    config = _read_json(path, "tokenizer_config.json") or {}
    defaults = tokenizer_class(_class_name(path, config))
    return _load(file, defaults, _with_added_tokens(path, config))


def _load(file: str, defaults: TokenizerClass, config: dict[str, Any]) -> LoadedTokenizer:
    if defaults.prefix_space == "leave" and config.get("add_prefix_space") is not None:
        raise ValueError(
            f"{file}: its class with add_prefix_space set is rebuilt from the SentencePiece model by transformers, "
            "which is not done here; remove the option from tokenizer_config.json, or name tokenizer.json itself"
        )
    backend = _read_backend(file)
    padding, truncation = backend.padding or {}, backend.truncation or {}
    backend.no_truncation()
    backend.no_padding()
    pad_token = {"pad_token": padding["pad_token"]} if padding else {}
    tokens = _special_tokens({**defaults.tokens, **pad_token, **_present(config)})
    written = _changeable(backend)
    _add_missing_tokens(backend, tokens, config.get("added_tokens_decoder") or {})
    backend.encode_special_tokens = bool(config.get("split_special_tokens"))
    _apply_class(backend, defaults, tokens, config)
    limit = config.get("model_max_length", config.get("max_len"))
    return LoadedTokenizer(
        backend,
        tokens,
        padding_side=_side(config.get("padding_side", padding.get("direction", defaults.padding_side))),
        truncation_side=_side(config.get("truncation_side", truncation.get("direction", "right"))),
        model_max_length=1e30 if limit is None else limit,
        pad_type_id=padding.get("pad_type_id", 0),
        cleans_up=bool(config.get("clean_up_tokenization_spaces")),
        file=file if _changeable(backend) == written else None,
    )


def _changeable(backend: Backend) -> tuple[Any, ...]:
    """Return the description of what a class can change: all but the model."""
    components = (backend.normalizer, backend.pre_tokenizer, backend.post_processor)
    return (*map(state_of, components), list(map(repr, backend.get_added_tokens_decoder().items())))


def _present(config: Mapping[str, Any]) -> dict[str, Any]:
    # A null in the file overrides the default token of the class, as an argument None does.
    return {key: config[key] for key in SPECIAL_TOKENS if key in config}


def _side(side: Any) -> str:
    if side not in ("right", "left"):
        raise ValueError(f"tokenizer_config.json: padding_side and truncation_side are right or left, not {side!r}")
    return str(side)


def _read_backend(path: str) -> Backend:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{path}: not a tokenizer.json that can be read ({error})") from None


def _read_json(folder: str, name: str) -> dict[str, Any] | None:
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            data = file.read()
        # tokenizer.json is large; in others, orjson would read a length limit of 31 digits as a float.
        tree = _parse_json(data) if name == "tokenizer.json" else json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON that can be read ({error})") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{path}: found {type(tree).__name__}, expected an object")
    return tree


def _parse_json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # NaN, or a lone surrogate, which Python's parser accepts
        return json.loads(data.decode("utf-8"))


def _class_name(path: str, config: Mapping[str, Any]) -> str:
    if "auto_map" in config and "tokenizer_class" not in config:
        raise ValueError(
            f"{path}: its tokenizer is custom code, which is not run here; pass the path of tokenizer.json itself"
        )
    if isinstance(config.get("tokenizer_class"), str):
        return str(config["tokenizer_class"])
    model = _read_json(path, "config.json") or {}
    if isinstance(model.get("tokenizer_class"), str):
        return str(model["tokenizer_class"])
    if "model_type" not in model:
        return "PreTrainedTokenizerFast"
    if model["model_type"] not in CLASS_OF_MODEL:
        raise ValueError(
            f"{path}: no tokenizer_class in tokenizer_config.json, and that of model type {model['model_type']!r} is "
            "not known here; name the class there, or name tokenizer.json itself"
        )
    return CLASS_OF_MODEL[model["model_type"]]


def _with_added_tokens(path: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the options, with the older companion files if tokenizer_config.json lacks added_tokens_decoder."""
    config = dict(config)
    decoder: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in config:
        decoder = {int(i): _added_token(token) for i, token in config["added_tokens_decoder"].items()}
    else:
        _read_special_tokens_map(path, config)
        special = {str(_token(token)) for key in SPECIAL_TOKENS for token in _as_list(config.get(key))}
        for content, i in (_read_json(path, "added_tokens.json") or {}).items():
            plain = content not in special
            decoder[i] = _added_token({"content": content, "normalized": plain, "special": not plain})
        for token in (_read_json(path, "tokenizer.json") or {}).get("added_tokens", []):
            decoder[token["id"]] = _added_token({key: value for key, value in token.items() if key != "id"})
    by_content = {token.content: token for token in decoder.values()}
    for key in SPECIAL_TOKENS[:-1]:
        if config.get(key) is not None:
            token = _token(config[key])
            config[key] = by_content.get(str(token), token)
    config["added_tokens_decoder"] = decoder
    return config


def _read_special_tokens_map(path: str, config: dict[str, Any]) -> None:
    for key, value in (_read_json(path, "special_tokens_map.json") or {}).items():
        if isinstance(value, dict):
            config[key] = _added_token({**value, "special": True})
        elif key == "additional_special_tokens" and isinstance(value, list):
            known = [_token(token) for token in config.get(key) or []]
            tokens = [_added_token({**t, "special": True}) if isinstance(t, dict) else t for t in value]
            config[key] = known + [token for token in tokens if token not in known]
        else:
            config[key] = value


def _added_token(fields: Any) -> AddedToken:
    from tokenizers import AddedToken

    if isinstance(fields, AddedToken):
        return fields
    if not isinstance(fields, Mapping) or not isinstance(fields.get("content"), str):
        raise ValueError(f"tokenizer files: found {fields!r}, expected an added token with its content")
    return AddedToken(**{key: value for key, value in fields.items() if key != "__type"})


def _token(value: Any) -> str | AddedToken:
    return value if isinstance(value, str) else _added_token(value)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    tokens: dict[str, Any] = {}
    for key in SPECIAL_TOKENS:
        if key == "additional_special_tokens":
            tokens[key] = [_token(value) for value in _as_list(config.get(key))]
        elif config.get(key) is not None:
            tokens[key] = _token(config[key])
    return tokens


def _unique(tokens: Mapping[str, Any]) -> Iterator[str | AddedToken]:
    seen: set[str] = set()
    for key in SPECIAL_TOKENS:
        for token in _as_list(tokens.get(key)):
            if str(token) and str(token) not in seen:
                seen.add(str(token))
                yield token


def _add_missing_tokens(backend: Backend, tokens: Mapping[str, Any], decoder: Mapping[int, AddedToken]) -> None:
    """Add the tokens of the other files that tokenizer.json lacks, as PreTrainedTokenizerFast does."""
    from tokenizers import AddedToken

    known = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    missing: list[Any] = [token for _, token in sorted(decoder.items()) if repr(token) not in known]
    taken = [token.content for token in backend.get_added_tokens_decoder().values()] + [str(t) for t in missing]
    special = list(_unique(tokens))
    # An AddedToken equals no string: the class's own <mask>, which strips the space before it, replaces the file's.
    missing += [token for token in special if token not in taken and token not in missing]
    names = {str(token) for token in special}
    added = []
    for token in missing:
        is_special = str(token) in names or (isinstance(token, AddedToken) and token.special)
        new = token if isinstance(token, AddedToken) else AddedToken(token, special=is_special)
        new.special = is_special
        added.append(new)
    if added:
        backend.add_tokens(added)


def _apply_class(
    backend: Backend, defaults: TokenizerClass, tokens: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    if defaults.prefix_space == "replace":
        _set_prefix_space(backend, config.get("add_prefix_space", False))
    if defaults.adds_bos is not None:
        _set_template(
            backend,
            tokens,
            bos=bool(config.get("add_bos_token", defaults.adds_bos)),
            eos=bool(config.get("add_eos_token", defaults.adds_eos)),
        )
    if defaults.lowercases:
        _set_bert_normalizer(backend, config)


def state_of(component: Any) -> dict[str, Any]:
    """Return the description of a pre-tokenizer, normalizer or post-processor in tokenizer.json; of none, {}.

    That of the whole tokenizer takes 0.1 s for 100,000 tokens.
    """
    state: dict[str, Any] = {} if component is None else orjson.loads(component.__getstate__())
    return state


def _set_prefix_space(backend: Backend, wanted: Any) -> None:
    from tokenizers import pre_tokenizers

    state = state_of(backend.pre_tokenizer)
    if state.get("add_prefix_space", wanted) == wanted:
        return
    # ByteLevel and, in old files, Metaspace; their constructors accept all other settings.
    kind = getattr(pre_tokenizers, state.pop("type"))
    try:
        backend.pre_tokenizer = kind(**{**state, "add_prefix_space": wanted})
    except TypeError:
        return  # transformers keeps a pre-tokenizer without such an argument


def _set_template(backend: Backend, tokens: Mapping[str, Any], bos: bool, eos: bool) -> None:
    from tokenizers import processors

    parts, pairs, special = ["$A:0"], ["$B:1"], []
    for wanted, key, place in ((bos, "bos_token", 0), (eos, "eos_token", len(parts) + bos)):
        if not wanted:
            continue
        if key not in tokens:
            raise ValueError(f"tokenizer_config.json: add_{key} is on, and there is no {key}")
        token = str(tokens[key])
        parts.insert(place, f"{token}:0")
        pairs.insert(place, f"{token}:1")
        special.append((token, backend.token_to_id(token)))
    backend.post_processor = processors.TemplateProcessing(
        single=" ".join(parts), pair=" ".join(parts + pairs), special_tokens=special
    )


def _set_bert_normalizer(backend: Backend, config: Mapping[str, Any]) -> None:
    from tokenizers import normalizers

    state = state_of(backend.normalizer)
    wanted = {
        "lowercase": config.get("do_lower_case", True),
        "strip_accents": config.get("strip_accents"),
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
    }
    if any(state.get(key, value) != value for key, value in wanted.items()):
        kind = getattr(normalizers, state.pop("type"))
        backend.normalizer = kind(**{**state, **wanted})
