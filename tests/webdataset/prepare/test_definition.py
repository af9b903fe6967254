"""What `prepare` says of dataset.yaml before it is written."""

from __future__ import annotations

from fastpack.webdataset.prepare.dataset_yaml import unknown_parts


def test_parts_that_no_sample_has_are_warned_of() -> None:
    parts = ["jpg", "txt", "json"]
    assert unknown_parts({"image": "jpg", "caption": "txt,json[caption]"}, parts) == []
    assert unknown_parts({"image": "png,jpg", "caption": "json[a][0]"}, parts) == []
    (warning,) = unknown_parts({"image": "png", "caption": "txt"}, parts)
    assert warning == "image is to come from png, which is none of the parts there are: jpg, txt, json"
    assert unknown_parts({"image": "png"}, [f"p{n}" for n in range(50)]) == []
    assert unknown_parts(None, parts) == []
