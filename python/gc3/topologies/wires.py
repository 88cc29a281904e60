"""The link classes of the presets. All bandwidths are of one lane in one direction.

Efficiencies: an NVLink packet carries at most 128 bytes of payload in a copy by a GPU kernel, and 256 bytes in one by a
copy engine, which is about 10 % faster (nccl-tests issue 149, 001 section 4).
"""

from __future__ import annotations

from gc3.topologies.parts import LinkClass

_TACCL = "latency: TACCL profiles of NDv2 and DGX-2"
_AS_NVLINK2 = "latency: assumed to be that of NVLink 2"
_NVLS = "nvlsEfficiency of NCCL 2.28 (src/graph/tuning.cc)"

NVLINK2 = LinkClass(
    "nvlink2",
    25e9,
    latency_s=0.3e-6,
    kernel_efficiency=0.8,
    dma_efficiency=0.88,
    source=f"25 GB/s: 001 section 5.1.1; kernels 20 GB/s: NCCL SM70_NVLINK_BW; {_TACCL}",
)
NVLINK3 = LinkClass(
    "nvlink3",
    25e9,
    latency_s=0.3e-6,
    kernel_efficiency=0.8,
    dma_efficiency=0.88,
    source=f"25 GB/s: 000 section 6, 12 links for 300 GB/s; kernels 20 GB/s: NCCL SM80_NVLINK_BW; {_AS_NVLINK2}",
)
NVLINK4 = LinkClass(
    "nvlink4",
    25e9,
    latency_s=0.3e-6,
    kernel_efficiency=0.824,
    dma_efficiency=0.844,
    multicast_efficiency=0.85,
    source=f"18 links for 450 GB/s; kernels 20.6 GB/s: NCCL SM90_NVLINK_BW; copy engines 380 of 450: nccl issue 1264; "
    f"{_AS_NVLINK2}; in the switch: {_NVLS}",
)
NVLINK5 = LinkClass(
    "nvlink5",
    50e9,
    latency_s=0.3e-6,
    kernel_efficiency=0.802,
    dma_efficiency=0.856,
    multicast_efficiency=0.74,
    source=f"18 links for 900 GB/s; kernels 40.1 GB/s: NCCL SM100_NVLINK_BW; copy engines 770 of 900: Azure "
    f"AI-benchmarking-guide issue 7; {_AS_NVLINK2}; in the switch: {_NVLS}",
)
XGMI_MI50 = LinkClass("xgmi", 33e9, source="33 GB/s measured: 001 section 5.1.2; latency not published")
PCIE4_MI50 = LinkClass("pcie4", 27e9, source="27 GB/s measured: 001 section 5.1.2; latency not published")
XGMI_MI250 = LinkClass(
    "xgmi3_mi250",
    50e9,
    kernel_efficiency=0.72,
    dma_efficiency=0.72,
    source="50 GB/s: AMD's page on the MI250's architecture; kernels 36 GB/s: RCCL MI200_XGMI_WIDTH, and copy engines "
    "assumed so; latency not published",
)
XGMI_MI300X = LinkClass(
    "xgmi3",
    64e9,
    kernel_efficiency=0.74,
    dma_efficiency=0.74,
    source="64 GB/s peak; 47 to 48 GB/s between a pair: ns3-msccl-data measurements; latency not published",
)

EDR = LinkClass(
    "edr",
    12.5e9,
    latency_s=2.6e-6,
    kernel_efficiency=0.76,
    dma_efficiency=0.76,
    message_s=1e-6,
    source=f"100 Gbit/s; 9.5 GB/s measured: TACCL profiles; 1 us per message: NCCL net-post on Intel hosts; {_TACCL}",
)
HDR = LinkClass(
    "hdr",
    25e9,
    latency_s=1.1e-6,
    kernel_efficiency=0.95,
    dma_efficiency=0.95,
    message_s=2e-6,
    source="25 GB/s: 002 section 7; 23.75 GB/s usable: nccl-tests issues 100 and 149; 2 us per message: NCCL "
    "net-post on AMD hosts; latency: fitted to AllReduce on 2 to 16 nodes (aistabci/abci2.0benchmark)",
)
NDR = LinkClass(
    "ndr",
    50e9,
    latency_s=1.1e-6,
    kernel_efficiency=0.97,
    dma_efficiency=0.97,
    message_s=0.6e-6,
    source="400 Gbit/s; 48 to 49 GB/s usable: nccl-tests issue 212; 0.6 us per message: fitted to AllReduce and "
    "AllToAll on 2 to 10 nodes (nccl-tests issue 309, xxrjun/nccl-tests-cluster); latency: that of HDR",
)
NIC_MI250 = LinkClass(
    "nic_mi250",
    16e9,
    latency_s=2.6e-6,
    kernel_efficiency=0.95,
    dma_efficiency=0.95,
    message_s=2e-6,
    source="16 GB/s of InfiniBand for each die: ForestColl, arXiv 2402.06787; efficiency, time per message and "
    "latency: assumed to be those of HDR",
)
NDR_MI300X = LinkClass(
    "ndr",
    50e9,
    latency_s=1.1e-6,
    kernel_efficiency=0.89,
    dma_efficiency=0.89,
    message_s=2e-6,
    source="400 Gbit/s; ib_write 44 to 44.7 GB/s and 1.1 us: ns3-msccl-data; 2 us per message: NCCL net-post on AMD",
)

_PCIE = "line rate of 16 lanes; kernels and NICs get 12/16 of 2^gen GB/s: NCCL topo.cc; latency: NCCL LL hop over PCI"
PCIE3 = LinkClass("pcie3", 15.75e9, 1e-6, kernel_efficiency=0.762, dma_efficiency=0.762, source=_PCIE)
PCIE4 = LinkClass("pcie4", 31.5e9, 1e-6, kernel_efficiency=0.762, dma_efficiency=0.762, source=_PCIE)
PCIE5 = LinkClass("pcie5", 63e9, 1e-6, kernel_efficiency=0.762, dma_efficiency=0.762, source=_PCIE)
QPI = LinkClass("qpi", 6e9, 1e-6, source="6 GB/s: NCCL BDW_QPI_BW; latency: NCCL LL hop over PCI")
XBUS = LinkClass("xbus", 32e9, 1e-6, source="64 GB/s in both directions: 004 figure 1, NCCL P9_BW; latency: assumed")
