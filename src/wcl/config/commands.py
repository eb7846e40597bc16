"""The settings of the other commands."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from wcl.config.bounds import (
    Count,
    Devices,
    PositiveCount,
    Probability,
    Seed,
    Threads,
    Workers,
    between,
)
from wcl.config.pretraining import PretrainConfig


@dataclass
class DataConfig:
    """Inspect a data set: number of images, their sizes and classes, unreadable files."""

    max_listed: int = 20
    """Maximum number of unreadable images to list."""


@dataclass
class ViewsConfig(PretrainConfig):
    """Draw what the augmentations of a run do to images."""

    out: str = "views.png"
    """PNG file to write."""
    images: int = 8
    """Number of images, one per row."""
    views: int = 8
    """Number of views of each image, one per column."""


@dataclass
class EmbedConfig:
    """Write the path, label and features of every image to a file. A command that was stopped
    continues where it left off when it is started again."""

    data: str = ""
    """Images, as for `wcl pretrain`."""
    out: str = ""
    """File to write: .parquet, .csv, or .npy with the paths in a .paths.csv beside it."""
    split: Literal["train", "test", "all"] = "train"
    """Which images to embed if the data have a training and a test split; train means all if they
    have not."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    threads: Threads = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""
    num_workers: Workers = -1
    """Processes that decode photos; -1 chooses by the number of cores."""


@dataclass
class RetrievalConfig:
    """Settings of every comparison of images."""

    data: str = ""
    """Images, as for `wcl pretrain`; the training split if there are splits."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    num_workers: Workers = -1
    """Processes that decode photos; -1 chooses by the number of cores."""
    threads: Threads = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""


@dataclass
class SearchConfig(RetrievalConfig):
    """Find the images most similar to a given one. Prints a table and draws neighbors.png."""

    query: list[str] = field(default_factory=list)
    """Images to compare with."""
    k: PositiveCount = 12
    """Number of neighbors of each query; `-k` means the same."""
    out: str = ""
    """PNG file to write; by default a new file in the current folder, or none with --json."""


@dataclass
class GroupsConfig(RetrievalConfig):
    """Settings of every command that groups images."""

    out: str = ""
    """CSV file to write, with a picture beside it: groups.csv and groups.png. By default new files
    in the current folder, or none with --json."""


@dataclass
class DuplicatesConfig(GroupsConfig):
    """Find groups of near-duplicate images. The encoder and the pixels of reduced images suggest
    pairs, and a comparison of the pixels confirms them, also of slightly cropped, mirrored,
    brightened, resized and recompressed copies. Prints the largest groups, writes all of them to
    duplicates.csv and draws duplicates.png; nothing is deleted or moved."""

    threshold: Probability = 0.0
    """Similarity from which two images count as duplicates: the correlation of their edges, at most
    1; 0 chooses the widest gap between similarities around 0.9. Raise it if groups mix different
    images, lower it if copies are missed."""


@dataclass
class ClusterConfig(GroupsConfig):
    """Group all images by their features. Prints the sizes of the groups, writes path, group and
    distance of every image to cluster.csv and draws the center of each group in cluster.png."""

    groups: Count = 0
    """Number of groups; 0 chooses the level of the hierarchy of groups with the best silhouette."""


@dataclass
class ExportConfig:
    """Write a run's encoder in a format that other programs read."""

    to: Literal["timm", "safetensors", "torchscript", "onnx", "hub-folder"]
    """timm: the weights of the backbone under timm's names; safetensors: the whole encoder with its
    description; torchscript and onnx: a file that runs without this package, on float images
    between 0 and 1, which it normalizes; hub-folder: a folder for the Hugging Face hub."""
    out: str = ""
    """File or folder to write; by default a new one in RUN/export."""


@dataclass
class ReportConfig:
    """Write a self-contained HTML page about one or more runs: whether they worked, their curves,
    what they grouped, a map of the images, and the commands that repeat them."""

    data: str = ""
    """Images, as for `wcl pretrain`; by default those that the run was trained on."""
    out: str = ""
    """HTML file to write. By default RUN/report.html, or RUN/report-with-RUN2.html for several
    runs, which replaces the previous one."""
    images: Annotated[int, between(4, 20_000)] = 2000
    """Maximum number of images in the groups and the map, drawn at random."""
    seed: Seed = 0
    """Seed of that draw, and of the map."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    num_workers: Workers = -1
    """Processes that decode photos; -1 chooses by the number of cores."""
    threads: Threads = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""


@dataclass
class WatchConfig:
    """Show the curves of a run in a browser while it trains, with a button that stops it safely. It
    may be started before the run. Only browsers on this machine are answered."""

    port: Annotated[int, between(0, 65_535)] = 8765
    """Port of the web page; 0 for any free one."""


@dataclass
class DemoConfig:
    """Pretrain SimCLR and WCL on handwritten digits and compare their accuracy with few labels."""

    out: str = "runs/demo"
    """Folder of the two runs; a demo that was stopped continues there."""
    epochs: int = 100
    """Passes over the 1,297 training images."""
    seed: Seed = 0
    """Seed of every random choice."""
    threads: Threads = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""


@dataclass
class ReproduceConfig:
    """Train and evaluate what a table of the paper needs, and print our figures beside the
    published ones. A command that was stopped continues when it is started again; finished runs are
    reused. The table is also written to OUT/NAME-SCALE.md and .json."""

    scale: Literal["smoke", "digits", "cpu", "paper"] = "smoke"
    """smoke: seconds, on synthetic images, to see that it works; digits: minutes to hours on a CPU;
    cpu: hours to days on a CPU, with CIFAR-10 for everything; paper: the original settings, which
    need GPUs."""
    data: str = ""
    """The data set, as for `wcl pretrain`; NAME=SRC,NAME=SRC if the table needs several. CIFAR is
    downloaded automatically."""
    labels: str = ""
    """For the table semi: folder with lists of labeled images, 1percent.txt and 10percent.txt, as
    published by SimCLR; by default the same number is drawn from each class."""
    out: str = "runs/reproduce"
    """Folder of all runs, results and tables; tables share the runs that they have in common."""
    seeds: Count = 0
    """Number of seeds of each cell, from 0; 0 for the usual number at this scale."""
    only: str = ""
    """Make only the rows and columns whose names contain this text, and the rows that they are
    compared with. `batch 256 + 100 epochs` requires both."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    devices: Devices = 1
    """Processes to train with on this machine, as for `wcl pretrain`."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """Precision of the network during pretraining."""
    micro_batch_size: Count = 0
    """Images that pass through the network at once, as for `wcl pretrain`; 0 for all."""
    threads: Threads = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""
    num_workers: Workers = -1
    """Processes that decode photos; -1 chooses by the number of cores."""
