"""What an engine's model runner gives, on the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from asyncout.outputs.logprobs import LogprobsLists, LogprobsTensors
from asyncout.outputs.masks import SamplingMaskLists

#: Pooled vectors: [R, ...] in one tensor, or one tensor or None per request.
PoolerOutput: TypeAlias = "torch.Tensor | list[torch.Tensor | None]"


@dataclass
class KVConnectorOutput:
    """What a KV connector did during the step.

    Attributes
    ----------
    finished_sending, finished_recving, failed_recving : set of str, optional
        Requests whose KV transfer ended.
    kv_connector_stats, kv_cache_events, kv_connector_worker_meta : object, optional
        The connector's own.
    invalid_block_ids : set of int
        KV blocks that could not be loaded.
    expected_finished_count : int
        Workers that report on each request; says nothing by itself.
    """

    finished_sending: set[str] | None = None
    finished_recving: set[str] | None = None
    kv_connector_stats: Any = None
    kv_cache_events: Any = None
    kv_connector_worker_meta: Any = None
    invalid_block_ids: set[int] = field(default_factory=set)
    failed_recving: set[str] | None = None
    expected_finished_count: int = 0

    def is_empty(self) -> bool:
        """Whether nothing happened that anybody has to be told."""
        return not (
            self.finished_sending
            or self.finished_recving
            or self.failed_recving
            or self.kv_connector_stats
            or self.kv_cache_events
            or self.kv_connector_worker_meta
            or self.invalid_block_ids
        )


@dataclass
class ModelRunnerOutput:
    """One step's results for R requests, as the scheduler takes them.

    Attributes
    ----------
    req_ids : list of str, R long
    req_id_to_index : dict of str to int
    sampled_token_ids : list of list of int, R long
        Each request's tokens; never padded.
    logprobs : LogprobsLists, optional
    prompt_logprobs_dict : dict of str to (LogprobsTensors or None)
    prompt_token_id_logprobs_dict : dict of str to torch.Tensor
    pooler_output : list of (torch.Tensor or None), optional
    kv_connector_output : KVConnectorOutput, optional
    ec_connector_output, cudagraph_stats, aux_output_connector_output : object, optional
    num_nans_in_logits : dict of str to int, optional
    sampling_masks : SamplingMaskLists, optional
    """

    req_ids: list[str]
    req_id_to_index: dict[str, int]
    sampled_token_ids: list[list[int]] = field(default_factory=list)
    logprobs: LogprobsLists | None = None
    prompt_logprobs_dict: dict[str, LogprobsTensors | None] = field(default_factory=dict)
    prompt_token_id_logprobs_dict: dict[str, torch.Tensor] = field(default_factory=dict)
    pooler_output: list[torch.Tensor | None] | None = None
    kv_connector_output: KVConnectorOutput | None = None
    ec_connector_output: Any = None
    num_nans_in_logits: dict[str, int] | None = None
    cudagraph_stats: Any = None
    aux_output_connector_output: Any = None
    sampling_masks: SamplingMaskLists | None = None


class AsyncModelRunnerOutput(ABC):
    """A model runner output that is still on its way to the host."""

    @abstractmethod
    def get_output(self) -> ModelRunnerOutput:
        """Wait for the results and give them."""

    @abstractmethod
    def get_kv_connector_output(self) -> KVConnectorOutput | None:
        """Give the KV connector's output at once."""
