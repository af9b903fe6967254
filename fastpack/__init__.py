"""fastpack turns raw text and media into LLM training data and feeds it to the training loop at the speed of memory.

Public names are imported on first use: `import fastpack` itself loads neither numpy nor numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fastpack.version import __version__ as __version__

if TYPE_CHECKING:
    from fastpack import kernels
    from fastpack.analysis.findings import Finding, VerifyReport
    from fastpack.datasets.dummy import DummyDataset, DummySampleConfig
    from fastpack.datasets.factory import DatasetFactory, dataset_from_config
    from fastpack.datasets.flat_windows import MemoryMappedDataset
    from fastpack.datasets.jsonl import MemMapDataset
    from fastpack.datasets.mixture import CombinedDataset, MixtureDataset
    from fastpack.datasets.packed_blocks import PackedMemMapDatasetBase, PackedMemMapDatasetContinuous
    from fastpack.datasets.packed_megatron import PackedMemMapDatasetMegatron
    from fastpack.datasets.tatm import TatmMemmapDataset, get_dataset
    from fastpack.documents.create_index import IndexResult, create_raw_index
    from fastpack.documents.create_indices import create_raw_indices
    from fastpack.documents.lines_reader import LargeFileLinesReader
    from fastpack.documents.raw_index import read_raw_index, repair_raw_index, write_raw_index
    from fastpack.errors import (
        DataWarning,
        FastpackError,
        FormatError,
        JobError,
        MediaError,
        MissingExtra,
        StaleIndex,
        UntrustedCode,
    )
    from fastpack.inspection.inspect import inspect
    from fastpack.inspection.report import ReportResult, report
    from fastpack.inspection.verify import verify
    from fastpack.io import FileExistencePolicy
    from fastpack.io.checksums import write_checksums
    from fastpack.loading.collators import DatasetBatch, GPT2LLMCollateFn, LossMaskingCollateFnWrapper
    from fastpack.loading.config import load_config
    from fastpack.loading.loader import StatefulDataLoader
    from fastpack.loading.mixture_sampler import MixtureSampler
    from fastpack.loading.phases import PhaseSchedule, TrainingPhase
    from fastpack.loading.resumable_sampler import ResumableDistributedSampler
    from fastpack.loading.sampler import DistributedSampler
    from fastpack.packing.chat.instruction_tuning import (
        PreparedChat,
        PreparedPartition,
        prepare_instruction_tuning_data,
    )
    from fastpack.packing.pack import pack, pack_each, pack_encoded_data
    from fastpack.packing.pack_estimate import PlannedPack, plan_packing
    from fastpack.packing.pack_result import PackResult
    from fastpack.tokenizers.pretrained import PreTrainedHFTokenizer, PreTrainedSPTokenizer
    from fastpack.tokens.edit.chunk import create_shuffled_dataset_chunk, create_shuffled_jsonl_chunk
    from fastpack.tokens.edit.edit_result import EditResult
    from fastpack.tokens.edit.filter import KeepRules, create_filtered_tokenized_dataset, filter_packed_data
    from fastpack.tokens.edit.merge import merge_packed_data
    from fastpack.tokens.edit.repair import RepairResult, repair
    from fastpack.tokens.edit.shuffle import shuffle_jsonl_data, shuffle_tokenized_data
    from fastpack.tokens.flat.tatm_metadata import TatmDataMetadata
    from fastpack.tokens.manifest.manifest_writer import ManifestResult, write_manifest
    from fastpack.tokens.pbin.packed_file import PackedFile, PackedWriter
    from fastpack.webdataset.av_decoder import (
        AVData,
        AVDecoder,
        AVMetadata,
        get_clips_uniform,
        get_single_frames_uniform,
    )
    from fastpack.webdataset.cooking import Cooker, basic_sample_keys
    from fastpack.webdataset.dataset import WebDataset
    from fastpack.webdataset.field_map import FieldAccessError
    from fastpack.webdataset.prepare.crude_jsonl_index import JsonlIndexResult, index_webdataset_jsonl
    from fastpack.webdataset.prepare.dispatch import prepare
    from fastpack.webdataset.prepare.prepare_webdataset import PrepareResult, prepare_webdataset, rebuild_indexes
    from fastpack.webdataset.samples import (
        CaptioningSample,
        CrudeSample,
        ImageClassificationSample,
        ImageSample,
        InterleavedSample,
        MultiChoiceVQASample,
        OCRSample,
        Sample,
        SimilarityInterleavedSample,
        SourceInfo,
        TextSample,
        VidQASample,
        VQAOCRSample,
        VQASample,
    )

_HOME = {
    "create_shuffled_dataset_chunk": "tokens.edit.chunk",
    "create_shuffled_jsonl_chunk": "tokens.edit.chunk",
    "create_shuffled_jsonl_dataset_chunk": "tokens.edit.chunk",
    "KeepRules": "tokens.edit.filter",
    "create_filtered_tokenized_dataset": "tokens.edit.filter",
    "filter_packed_data": "tokens.edit.filter",
    "merge_packed_data": "tokens.edit.merge",
    "merge_packed_data_files": "tokens.edit.merge",
    "EditResult": "tokens.edit.edit_result",
    "shuffle_jsonl_data": "tokens.edit.shuffle",
    "shuffle_tokenized_data": "tokens.edit.shuffle",
    "PreparedChat": "packing.chat.instruction_tuning",
    "PreparedPartition": "packing.chat.instruction_tuning",
    "prepare_instruction_tuning_data": "packing.chat.instruction_tuning",
    "IndexResult": "documents.create_index",
    "create_raw_index": "documents.create_index",
    "create_raw_data_index": "documents.create_index",
    "create_raw_indices": "documents.create_indices",
    "ManifestResult": "tokens.manifest.manifest_writer",
    "write_manifest": "tokens.manifest.manifest_writer",
    "pack": "packing.pack",
    "PackResult": "packing.pack_result",
    "pack_each": "packing.pack",
    "PlannedPack": "packing.pack_estimate",
    "plan_packing": "packing.pack_estimate",
    "RepairResult": "tokens.edit.repair",
    "repair": "tokens.edit.repair",
    "PreTrainedHFTokenizer": "tokenizers.pretrained",
    "PreTrainedSPTokenizer": "tokenizers.pretrained",
    "pack_encoded_data": "packing.pack",
    "prepare": "webdataset.prepare.dispatch",
    "JsonlIndexResult": "webdataset.prepare.crude_jsonl_index",
    "index_webdataset_jsonl": "webdataset.prepare.crude_jsonl_index",
    "PrepareResult": "webdataset.prepare.prepare_webdataset",
    "prepare_webdataset": "webdataset.prepare.prepare_webdataset",
    "rebuild_indexes": "webdataset.prepare.prepare_webdataset",
    "Finding": "analysis.findings",
    "VerifyReport": "analysis.findings",
    "inspect": "inspection.inspect",
    "ReportResult": "inspection.report",
    "report": "inspection.report",
    "verify": "inspection.verify",
    "DummyDataset": "datasets.dummy",
    "DummySampleConfig": "datasets.dummy",
    "DatasetFactory": "datasets.factory",
    "dataset_from_config": "datasets.factory",
    "LargeFileLinesReader": "documents.lines_reader",
    "MemMapDataset": "datasets.jsonl",
    "MemoryMappedDataset": "datasets.flat_windows",
    "CombinedDataset": "datasets.mixture",
    "MixtureDataset": "datasets.mixture",
    "PackedMemMapDatasetBase": "datasets.packed_blocks",
    "PackedMemMapDatasetContinuous": "datasets.packed_blocks",
    "PackedMemMapDatasetMegatron": "datasets.packed_megatron",
    "TatmMemmapDataset": "datasets.tatm",
    "get_dataset": "datasets.tatm",
    "Cooker": "webdataset.cooking",
    "basic_sample_keys": "webdataset.cooking",
    "WebDataset": "webdataset.dataset",
    "AVData": "webdataset.av_decoder",
    "AVDecoder": "webdataset.av_decoder",
    "AVMetadata": "webdataset.av_decoder",
    "get_clips_uniform": "webdataset.av_decoder",
    "get_single_frames_uniform": "webdataset.av_decoder",
    "FieldAccessError": "webdataset.field_map",
    "CaptioningSample": "webdataset.samples",
    "CrudeSample": "webdataset.samples",
    "ImageClassificationSample": "webdataset.samples",
    "ImageSample": "webdataset.samples",
    "InterleavedSample": "webdataset.samples",
    "MultiChoiceVQASample": "webdataset.samples",
    "OCRSample": "webdataset.samples",
    "Sample": "webdataset.samples",
    "SimilarityInterleavedSample": "webdataset.samples",
    "SourceInfo": "webdataset.samples",
    "TextSample": "webdataset.samples",
    "VQAOCRSample": "webdataset.samples",
    "VQASample": "webdataset.samples",
    "VidQASample": "webdataset.samples",
    "DataWarning": "errors",
    "FastpackError": "errors",
    "FileExistencePolicy": "io",
    "FormatError": "errors",
    "JobError": "errors",
    "MediaError": "errors",
    "MissingExtra": "errors",
    "StaleIndex": "errors",
    "UntrustedCode": "errors",
    "write_checksums": "io.checksums",
    "read_raw_index": "documents.raw_index",
    "repair_raw_index": "documents.raw_index",
    "write_raw_index": "documents.raw_index",
    "PackedFile": "tokens.pbin.packed_file",
    "PackedWriter": "tokens.pbin.packed_file",
    "TatmDataMetadata": "tokens.flat.tatm_metadata",
    "DatasetBatch": "loading.collators",
    "GPT2LLMCollateFn": "loading.collators",
    "LossMaskingCollateFnWrapper": "loading.collators",
    "MixtureSampler": "loading.mixture_sampler",
    "PhaseSchedule": "loading.phases",
    "TrainingPhase": "loading.phases",
    "ResumableDistributedSampler": "loading.resumable_sampler",
    "DistributedSampler": "loading.sampler",
    "StatefulDataLoader": "loading.loader",
    "load_config": "loading.config",
}

__all__ = [
    "AVData",
    "AVDecoder",
    "AVMetadata",
    "CaptioningSample",
    "CombinedDataset",
    "Cooker",
    "CrudeSample",
    "DataWarning",
    "DatasetBatch",
    "DatasetFactory",
    "DistributedSampler",
    "DummyDataset",
    "DummySampleConfig",
    "EditResult",
    "FastpackError",
    "FieldAccessError",
    "FileExistencePolicy",
    "Finding",
    "FormatError",
    "GPT2LLMCollateFn",
    "ImageClassificationSample",
    "ImageSample",
    "IndexResult",
    "InterleavedSample",
    "JobError",
    "JsonlIndexResult",
    "KeepRules",
    "LargeFileLinesReader",
    "LossMaskingCollateFnWrapper",
    "ManifestResult",
    "MediaError",
    "MemMapDataset",
    "MemoryMappedDataset",
    "MissingExtra",
    "MixtureDataset",
    "MixtureSampler",
    "MultiChoiceVQASample",
    "OCRSample",
    "PackResult",
    "PackedFile",
    "PackedMemMapDatasetBase",
    "PackedMemMapDatasetContinuous",
    "PackedMemMapDatasetMegatron",
    "PackedWriter",
    "PhaseSchedule",
    "PlannedPack",
    "PreTrainedHFTokenizer",
    "PreTrainedSPTokenizer",
    "PrepareResult",
    "PreparedChat",
    "PreparedPartition",
    "RepairResult",
    "ReportResult",
    "ResumableDistributedSampler",
    "Sample",
    "SimilarityInterleavedSample",
    "SourceInfo",
    "StaleIndex",
    "StatefulDataLoader",
    "TatmDataMetadata",
    "TatmMemmapDataset",
    "TextSample",
    "TrainingPhase",
    "UntrustedCode",
    "VQAOCRSample",
    "VQASample",
    "VerifyReport",
    "VidQASample",
    "WebDataset",
    "basic_sample_keys",
    "create_filtered_tokenized_dataset",
    "create_raw_index",
    "create_raw_indices",
    "create_shuffled_dataset_chunk",
    "create_shuffled_jsonl_chunk",
    "dataset_from_config",
    "filter_packed_data",
    "get_clips_uniform",
    "get_dataset",
    "get_single_frames_uniform",
    "index_webdataset_jsonl",
    "inspect",
    "kernels",
    "load_config",
    "merge_packed_data",
    "pack",
    "pack_each",
    "pack_encoded_data",
    "plan_packing",
    "prepare",
    "prepare_instruction_tuning_data",
    "prepare_webdataset",
    "read_raw_index",
    "rebuild_indexes",
    "repair",
    "repair_raw_index",
    "report",
    "shuffle_jsonl_data",
    "shuffle_tokenized_data",
    "verify",
    "write_checksums",
    "write_manifest",
    "write_raw_index",
]


def __getattr__(name: str) -> Any:
    if name == "kernels":
        return importlib.import_module("fastpack.kernels")
    if name not in _HOME:
        raise AttributeError(f"module 'fastpack' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fastpack.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
