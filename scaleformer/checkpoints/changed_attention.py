"""Changes attention options of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.model.attention import options_of
from scaleformer.model.transformer import Transformer


def change_attention(loaded: LoadedModel, options: Mapping[str, Any]) -> LoadedModel:
    """The same weights with other attention options, such as a greater `kept`, at every site that has them. The hash
    stays that of the original file; an exported model gets its own. Raises ValueError for an option that no attention
    of the model has, or that does not fit the weights."""
    config = loaded.model.config
    choices = [config.attention, *config.sites.values()]
    known = sorted({option for choice in choices for option in options_of(choice["name"])})
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(
            f"the attention of {loaded.path} has no option {', '.join(unknown)}; it has {', '.join(known)}"
        )

    def changed(choice: Mapping[str, Any]) -> dict[str, Any]:
        return {**choice, **{name: options[name] for name in options_of(choice["name"]) if name in options}}

    sites = {site: changed(choice) for site, choice in config.sites.items()}
    try:
        model = Transformer(replace(config, attention=changed(config.attention), sites=sites))
        model.load_state_dict(loaded.model.state_dict())
    except TypeError as error:
        raise ValueError(f"attention={dict(options)}: {error}") from error
    except RuntimeError as error:
        names = ", ".join(options)
        raise ValueError(
            f"{names} cannot be changed after training: the weights of {loaded.path} would not fit"
        ) from error
    model.to(loaded.model.output_weight.device).eval()
    return replace(loaded, model=model)
