"""Which samples and which tokens of them a process needs, when a model is divided over several processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Dimensions of a device mesh by name, as torch, torchtitan and Megatron name them.
_KINDS = {"pp": "pipeline", "cp": "context", "tp": "tensor", "data": "data", "batch": "data", "fsdp": "data"}


@dataclass(frozen=True)
class ParallelRanks:
    """The place of a process in data, context, tensor and pipeline parallelism, each as (rank, size).

    Processes that differ only in tensor or pipeline rank get the same batches, those that differ in context rank get
    shares of the same batches; nothing is communicated.

    Attributes
    ----------
    data, context, tensor, pipeline : tuple of int
        Rank and size. `data` is for the sampler, `context` for context_parallel of the loader.

    Examples
    --------
    >>> import fastpack
    >>> ranks = fastpack.ParallelRanks.from_sizes(rank=13, world_size=16, tp=2, cp=2, pp=2)
    >>> ranks
    ParallelRanks(data=(1, 2), context=(0, 2), tensor=(1, 2), pipeline=(1, 2))
    >>> ranks.sampler_options
    {'num_replicas': 2, 'rank': 1}
    """

    data: tuple[int, int] = (0, 1)
    context: tuple[int, int] = (0, 1)
    tensor: tuple[int, int] = (0, 1)
    pipeline: tuple[int, int] = (0, 1)

    @classmethod
    def from_sizes(cls, rank: int, world_size: int, *, tp: int = 1, cp: int = 1, pp: int = 1) -> ParallelRanks:
        """Return the place of a rank; what tp, cp and pp leave is data parallel.

        Parameters
        ----------
        rank, world_size
            Of the process, as in torch.distributed.
        tp, cp, pp
            The sizes of tensor, context and pipeline parallelism. Ranks are counted in the order tp, cp, dp, pp, tensor
            ranks being adjacent (the default of Megatron, and torchtitan's mesh).

        Returns
        -------
        ParallelRanks
            The place.

        Raises
        ------
        ValueError
            If tp * cp * pp does not divide world_size, or rank is out of range.
        """
        if min(tp, cp, pp) < 1 or world_size < 1 or world_size % (tp * cp * pp):
            raise ValueError(f"{world_size} ranks cannot be divided by tp={tp} * cp={cp} * pp={pp}")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank}, of {world_size} ranks")
        places, rest = [], rank
        for size in (tp, cp, world_size // (tp * cp * pp), pp):
            places.append((rest % size, size))
            rest //= size
        tensor, context, data, pipeline = places
        return cls(data, context, tensor, pipeline)

    @classmethod
    def from_mesh(cls, mesh: Any, names: Mapping[str, str] | None = None) -> ParallelRanks:
        """Return the place of this process in a torch DeviceMesh with named dimensions.

        Parameters
        ----------
        mesh
            A `torch.distributed.DeviceMesh`. Dimensions named pp, cp and tp are what they say; those named data, batch,
            fsdp, or whose name starts with dp (dp_replicate, dp_shard) are data parallel, together.
        names
            The kind of dimensions with other names: "data", "context", "tensor" or "pipeline".

        Returns
        -------
        ParallelRanks
            The place.

        Raises
        ------
        ValueError
            If a dimension has no name or an unknown one, or this process is not in the mesh.
        """
        coordinates, dimensions = mesh.get_coordinate(), mesh.mesh_dim_names
        if coordinates is None or not dimensions:
            raise ValueError(f"{'this process is not in' if dimensions else 'name the dimensions of'} the mesh {mesh}")
        kinds = {**_KINDS, **(names or {})}
        places = dict.fromkeys(("data", "context", "tensor", "pipeline"), (0, 1))
        for name, coordinate, size in zip(dimensions, coordinates, mesh.shape, strict=True):
            kind = kinds.get(name, "data" if name.startswith("dp") else "")
            if kind not in places:
                known = "pp, cp, tp, data, batch, fsdp or dp..."
                raise ValueError(f"the mesh has a dimension {name!r}: {known} are known, pass names={{{name!r}: kind}}")
            rank, outer = places[kind]
            places[kind] = rank * size + coordinate, outer * size
        return cls(**places)

    @property
    def sampler_options(self) -> dict[str, int]:
        """The arguments num_replicas and rank of a sampler."""
        rank, size = self.data
        return {"num_replicas": size, "rank": rank}

    @property
    def needs_tokens(self) -> bool:
        """Whether this is a first or last pipeline stage, which needs inputs or labels; others need only shapes."""
        rank, size = self.pipeline
        return rank in (0, size - 1)

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return math.prod(size for _, size in (self.data, self.context, self.tensor, self.pipeline))
