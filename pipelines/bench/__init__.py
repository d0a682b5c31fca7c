"""The benchmarks: each measures against its peer in the same run."""
