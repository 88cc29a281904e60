"""What nccl-tests prints."""

DEVICES = "\n".join(f"#  Rank  {r} Group  0 Pid  77 on  node0 device  {r} [0x07] NVIDIA A100" for r in range(8))
ALLREDUCE = f"""# nThread 1 nGpus 8 minBytes 1024 maxBytes 1048576 step: 32(factor) iters: 20
#
# Using devices
{DEVICES}
#
# Reducing maxBytes to 1048576 due to memory limitation
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
node0:77:77 [0] NCCL INFO Connected all rings
        1024           256     float     sum      -1    17.34    0.06    0.10      0    17.17    0.06    0.10      0
       32768          8192     float     sum      -1    31.56    1.04    1.82      0    31.69    1.03    1.81      0
     1048576        262144     float     sum      -1    71.85   14.59   25.54      0    71.80   14.60   25.56      2
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 9.1555
# all_reduce_perf done
"""
DEVICES = "\n".join(f"#  Rank  {r} Group  0 Pid  77 on  node0 device  {r} [0x07] NVIDIA A100" for r in range(8))
