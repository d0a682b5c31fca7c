"""Readers: what landed, in the words of its source, becomes typed rows with their raw stamps.

`reader` says what a reader owes, `sources` tells sources apart, and there is a module for each source; `tables`,
`days`, `dates`, `stamps`, `manifest` and `ubx` are what they share. `fetch` brings published data sets here.
"""
