"""fastpack turns raw text and media into LLM training data and feeds it to the training loop at the speed of memory.

Public names are imported on first use: `import fastpack` itself loads neither numpy nor numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastpack import kernels
    from fastpack.build.chat.prepare import PreparedChat, PreparedPartition, prepare_instruction_tuning_data
    from fastpack.build.editing.chunk import create_shuffled_dataset_chunk, create_shuffled_jsonl_chunk
    from fastpack.build.editing.filter import KeepRules, create_filtered_tokenized_dataset, filter_packed_data
    from fastpack.build.editing.merge import merge_packed_data
    from fastpack.build.editing.results import EditResult
    from fastpack.build.editing.shuffle import shuffle_jsonl_data, shuffle_tokenized_data
    from fastpack.build.indexing.index import IndexResult, create_raw_index
    from fastpack.build.indexing.many import create_raw_indices
    from fastpack.build.manifest import ManifestResult, write_manifest
    from fastpack.build.packing.direct import pack
    from fastpack.build.packing.pack import PackResult, pack_each, pack_encoded_data
    from fastpack.build.packing.plan import PlannedPack, plan_packing
    from fastpack.build.repair import RepairResult, repair
    from fastpack.build.tokenizing.wrappers import PreTrainedHFTokenizer, PreTrainedSPTokenizer
    from fastpack.build.webdataset.dispatch import prepare
    from fastpack.build.webdataset.jsonl import JsonlIndexResult, index_webdataset_jsonl
    from fastpack.build.webdataset.prepare import PrepareResult, prepare_webdataset, rebuild_indexes
    from fastpack.checks.findings import Finding, VerifyReport
    from fastpack.checks.verify import verify
    from fastpack.datasets.dummy import DummyDataset, DummySampleConfig
    from fastpack.datasets.factory import DatasetFactory, dataset_from_config
    from fastpack.datasets.lines import LargeFileLinesReader
    from fastpack.datasets.megatron import PackedMemMapDatasetMegatron
    from fastpack.datasets.mem_map import MemMapDataset
    from fastpack.datasets.memory_mapped import MemoryMappedDataset
    from fastpack.datasets.mixture import CombinedDataset, MixtureDataset
    from fastpack.datasets.packed import PackedMemMapDatasetBase, PackedMemMapDatasetContinuous
    from fastpack.datasets.tatm import TatmMemmapDataset, get_dataset
    from fastpack.datasets.webdataset.av_decoder import (
        AVData,
        AVDecoder,
        AVMetadata,
        get_clips_uniform,
        get_single_frames_uniform,
    )
    from fastpack.datasets.webdataset.cooking import Cooker, basic_sample_keys
    from fastpack.datasets.webdataset.dataset import WebDataset
    from fastpack.datasets.webdataset.field_map import FieldAccessError
    from fastpack.datasets.webdataset.samples import (
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
    from fastpack.files import FileExistencePolicy
    from fastpack.formats.checksums import write_checksums
    from fastpack.formats.pbin import PackedFile, PackedWriter
    from fastpack.formats.raw_index import read_raw_index, repair_raw_index, write_raw_index
    from fastpack.formats.tatm import TatmDataMetadata
    from fastpack.loading.collators import DatasetBatch, GPT2LLMCollateFn, LossMaskingCollateFnWrapper
    from fastpack.loading.config import load_config
    from fastpack.loading.loader import StatefulDataLoader
    from fastpack.loading.mixture_sampler import MixtureSampler
    from fastpack.loading.phases import PhaseSchedule, TrainingPhase
    from fastpack.loading.resumable_sampler import ResumableDistributedSampler
    from fastpack.loading.sampler import DistributedSampler
    from fastpack.views.inspect import inspect
    from fastpack.views.report import ReportResult, report

__version__ = "0.1.0"

_HOME = {
    "create_shuffled_dataset_chunk": "build.editing.chunk",
    "create_shuffled_jsonl_chunk": "build.editing.chunk",
    "create_shuffled_jsonl_dataset_chunk": "build.editing.chunk",
    "KeepRules": "build.editing.filter",
    "create_filtered_tokenized_dataset": "build.editing.filter",
    "filter_packed_data": "build.editing.filter",
    "merge_packed_data": "build.editing.merge",
    "merge_packed_data_files": "build.editing.merge",
    "EditResult": "build.editing.results",
    "shuffle_jsonl_data": "build.editing.shuffle",
    "shuffle_tokenized_data": "build.editing.shuffle",
    "PreparedChat": "build.chat.prepare",
    "PreparedPartition": "build.chat.prepare",
    "prepare_instruction_tuning_data": "build.chat.prepare",
    "IndexResult": "build.indexing.index",
    "create_raw_index": "build.indexing.index",
    "create_raw_data_index": "build.indexing.index",
    "create_raw_indices": "build.indexing.many",
    "ManifestResult": "build.manifest",
    "write_manifest": "build.manifest",
    "pack": "build.packing.direct",
    "PackResult": "build.packing.pack",
    "pack_each": "build.packing.pack",
    "PlannedPack": "build.packing.plan",
    "plan_packing": "build.packing.plan",
    "RepairResult": "build.repair",
    "repair": "build.repair",
    "PreTrainedHFTokenizer": "build.tokenizing.wrappers",
    "PreTrainedSPTokenizer": "build.tokenizing.wrappers",
    "pack_encoded_data": "build.packing.pack",
    "prepare": "build.webdataset.dispatch",
    "JsonlIndexResult": "build.webdataset.jsonl",
    "index_webdataset_jsonl": "build.webdataset.jsonl",
    "PrepareResult": "build.webdataset.prepare",
    "prepare_webdataset": "build.webdataset.prepare",
    "rebuild_indexes": "build.webdataset.prepare",
    "Finding": "checks.findings",
    "VerifyReport": "checks.findings",
    "inspect": "views.inspect",
    "ReportResult": "views.report",
    "report": "views.report",
    "verify": "checks.verify",
    "DummyDataset": "datasets.dummy",
    "DummySampleConfig": "datasets.dummy",
    "DatasetFactory": "datasets.factory",
    "dataset_from_config": "datasets.factory",
    "LargeFileLinesReader": "datasets.lines",
    "MemMapDataset": "datasets.mem_map",
    "MemoryMappedDataset": "datasets.memory_mapped",
    "CombinedDataset": "datasets.mixture",
    "MixtureDataset": "datasets.mixture",
    "PackedMemMapDatasetBase": "datasets.packed",
    "PackedMemMapDatasetContinuous": "datasets.packed",
    "PackedMemMapDatasetMegatron": "datasets.megatron",
    "TatmMemmapDataset": "datasets.tatm",
    "get_dataset": "datasets.tatm",
    "Cooker": "datasets.webdataset.cooking",
    "basic_sample_keys": "datasets.webdataset.cooking",
    "WebDataset": "datasets.webdataset.dataset",
    "AVData": "datasets.webdataset.av_decoder",
    "AVDecoder": "datasets.webdataset.av_decoder",
    "AVMetadata": "datasets.webdataset.av_decoder",
    "get_clips_uniform": "datasets.webdataset.av_decoder",
    "get_single_frames_uniform": "datasets.webdataset.av_decoder",
    "FieldAccessError": "datasets.webdataset.field_map",
    "CaptioningSample": "datasets.webdataset.samples",
    "CrudeSample": "datasets.webdataset.samples",
    "ImageClassificationSample": "datasets.webdataset.samples",
    "ImageSample": "datasets.webdataset.samples",
    "InterleavedSample": "datasets.webdataset.samples",
    "MultiChoiceVQASample": "datasets.webdataset.samples",
    "OCRSample": "datasets.webdataset.samples",
    "Sample": "datasets.webdataset.samples",
    "SimilarityInterleavedSample": "datasets.webdataset.samples",
    "SourceInfo": "datasets.webdataset.samples",
    "TextSample": "datasets.webdataset.samples",
    "VQAOCRSample": "datasets.webdataset.samples",
    "VQASample": "datasets.webdataset.samples",
    "VidQASample": "datasets.webdataset.samples",
    "DataWarning": "errors",
    "FastpackError": "errors",
    "FileExistencePolicy": "files",
    "FormatError": "errors",
    "JobError": "errors",
    "MediaError": "errors",
    "MissingExtra": "errors",
    "StaleIndex": "errors",
    "UntrustedCode": "errors",
    "write_checksums": "formats.checksums",
    "read_raw_index": "formats.raw_index",
    "repair_raw_index": "formats.raw_index",
    "write_raw_index": "formats.raw_index",
    "PackedFile": "formats.pbin",
    "PackedWriter": "formats.pbin",
    "TatmDataMetadata": "formats.tatm",
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
