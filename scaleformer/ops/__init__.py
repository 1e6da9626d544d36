"""Attention as pure functions on tensors. Depends on torch alone."""

from scaleformer.ops.choice import Choice, choose_algorithm
from scaleformer.ops.feature_maps import FEATURE_MAPS, get_feature_map
from scaleformer.ops.hybrid_cross import HybridCrossState, hybrid_cross_state, hybrid_cross_step
from scaleformer.ops.hybrid_stepwise import HybridCausalState, hybrid_causal_init, hybrid_causal_step
from scaleformer.ops.kernel_attention import relative_kernel_attention
from scaleformer.ops.recall_cross import RecallCrossState, recall_cross_state, recall_cross_step
from scaleformer.ops.recall_stepwise import RecallCausalState, recall_causal_init, recall_causal_step
from scaleformer.ops.segment_cross import SegmentCrossState, segment_cross_state, segment_cross_step
from scaleformer.ops.segment_gated import segment_gated_attention
from scaleformer.ops.segment_hybrid import segment_hybrid_attention
from scaleformer.ops.segment_recall import segment_recall_attention
from scaleformer.ops.segment_stepwise import (
    SegmentCausalState,
    segment_causal_init,
    segment_causal_state,
    segment_causal_step,
)
from scaleformer.ops.stepwise import (
    CausalState,
    CrossState,
    causal_init,
    causal_state,
    causal_step,
    cross_state,
    cross_step,
)

__all__ = [
    "FEATURE_MAPS",
    "CausalState",
    "Choice",
    "CrossState",
    "HybridCausalState",
    "HybridCrossState",
    "RecallCausalState",
    "RecallCrossState",
    "SegmentCausalState",
    "SegmentCrossState",
    "causal_init",
    "causal_state",
    "causal_step",
    "choose_algorithm",
    "cross_state",
    "cross_step",
    "get_feature_map",
    "hybrid_causal_init",
    "hybrid_causal_step",
    "hybrid_cross_state",
    "hybrid_cross_step",
    "recall_causal_init",
    "recall_causal_step",
    "recall_cross_state",
    "recall_cross_step",
    "relative_kernel_attention",
    "segment_causal_init",
    "segment_causal_state",
    "segment_causal_step",
    "segment_cross_state",
    "segment_cross_step",
    "segment_gated_attention",
    "segment_hybrid_attention",
    "segment_recall_attention",
]
