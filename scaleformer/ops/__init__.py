"""Attention as pure functions on tensors. Depends on torch alone."""

from scaleformer.ops.common.choice import Choice, choose_algorithm
from scaleformer.ops.common.feature_maps import FEATURE_MAPS, get_feature_map
from scaleformer.ops.kernel.attention import relative_kernel_attention
from scaleformer.ops.kernel.decoding import CausalState, CrossState, causal_init, causal_step, cross_state, cross_step
from scaleformer.ops.recall.attention import segment_recall_attention
from scaleformer.ops.recall.decoding import RecallCausalState, recall_causal_init, recall_causal_step
from scaleformer.ops.recall.decoding_cross import RecallCrossState, recall_cross_state, recall_cross_step
from scaleformer.ops.segments.layout import SegmentLayout

__all__ = [
    "FEATURE_MAPS", "CausalState", "Choice", "CrossState", "RecallCausalState", "RecallCrossState", "SegmentLayout",
    "causal_init", "causal_step", "choose_algorithm", "cross_state", "cross_step", "get_feature_map",
    "recall_causal_init", "recall_causal_step", "recall_cross_state", "recall_cross_step",
    "relative_kernel_attention", "segment_recall_attention",
]  # fmt: skip
