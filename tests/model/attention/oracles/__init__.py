"""Every attention against somebody else's code: the same weights and inputs, the output and all gradients.

`python -m tests.model.attention.oracles` runs the packages of the extra `oracle`, writes docs/oracles.md, and keeps
what they say in numbers.safetensors: tests compare with that where a package is not installed.
"""
