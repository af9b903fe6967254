"""Warnings about dataset.yaml before it is written."""

from __future__ import annotations

from fastpack.webdataset.preparation.dataset_yaml import missing_field_warnings


def test_fields_that_no_sample_has_cause_a_warning() -> None:
    fields = ["jpg", "txt", "json"]
    assert missing_field_warnings({"image": "jpg", "caption": "txt,json[caption]"}, fields) == []
    assert missing_field_warnings({"image": "png,jpg", "caption": "json[a][0]"}, fields) == []
    (warning,) = missing_field_warnings({"image": "png", "caption": "txt"}, fields)
    assert warning == "the field image is mapped to png, which no sample has; the stored fields are: jpg, txt, json"
    assert missing_field_warnings({"image": "png"}, [f"p{n}" for n in range(50)]) == []
    assert missing_field_warnings(None, fields) == []
