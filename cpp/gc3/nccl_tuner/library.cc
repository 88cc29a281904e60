// The shared library libgc3_nccl_tuner.so consists of the layer's objects; a target needs a source of its own.
