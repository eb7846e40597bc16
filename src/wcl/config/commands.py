"""The options of the other commands."""

from dataclasses import dataclass, field
from typing import Literal

from wcl.config.pretraining import PretrainConfig


@dataclass
class DataConfig:
    """Look at a data set: how many images, their sizes and classes, and which cannot be read."""

    max_listed: int = 20
    """How many unreadable images to name."""


@dataclass
class ViewsConfig(PretrainConfig):
    """Write a picture of what the augmentations of a run would do to images."""

    out: str = "views.png"
    """PNG file to write."""
    images: int = 8
    """Rows: how many images."""
    views: int = 8
    """Columns: how many views of each."""


@dataclass
class EmbedConfig:
    """Write path, label and vector of every image to a file. A command that was stopped goes on
    where it was when it is started again."""

    data: str = ""
    """Images, as for `wcl pretrain`."""
    out: str = ""
    """File to write: .parquet, .csv, or .npy with the paths in a .paths.csv beside it."""
    split: Literal["train", "test", "all"] = "train"
    """Which images, of data that have a training and a test split; of others train is all."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""
    num_workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""


@dataclass
class RetrievalConfig:
    """What every comparison of images needs."""

    data: str = ""
    """Images, as for `wcl pretrain`; of data with splits, the training split."""
    out: str = ""
    """PNG file to write; its default is a new file in the current folder, or none with --json."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    num_workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""


@dataclass
class SearchConfig(RetrievalConfig):
    """Find the images most like a given one: a table, and a picture (neighbors.png)."""

    query: list[str] = field(default_factory=list)
    """Image file to compare with; several with commas between, or with --query again."""
    k: int = 12
    """How many neighbors of each; also written -k."""


@dataclass
class DuplicatesConfig(RetrievalConfig):
    """Find groups of images that are nearly the same: a table, and a picture of the largest
    (duplicates.png). Nothing is deleted or moved."""

    threshold: float = 0.97
    """Cosine from which on two images count as the same. How alike different images are depends on
    the encoder: raise it if groups hold different images, lower it if copies are missed."""


@dataclass
class ExportConfig:
    """Write a run's encoder in a format for other programs, or for other people."""

    to: Literal["timm", "safetensors", "torchscript", "onnx", "hub-folder"]
    """timm: the backbone's weights alone, under timm's names; safetensors: the whole encoder, which
    describes itself; torchscript and onnx: a file that runs without this package, on float images
    between 0 and 1, which it normalizes itself; hub-folder: for the Hugging Face hub."""
    out: str = ""
    """File or folder to write; a new one in RUN/export by default."""


@dataclass
class ReportConfig:
    """Write one page, which needs nothing else, about one or several runs: whether they worked,
    their curves, what they grouped, a map of the images, and how to repeat them."""

    data: str = ""
    """Images, as for `wcl pretrain`; those that the run was trained on by default."""
    out: str = ""
    """HTML file to write. By default it is RUN/report.html, or of several runs
    RUN/report-with-RUN2.html, and replaces the one before it."""
    images: int = 2000
    """At most so many images, drawn at random, for the groups and the map."""
    seed: int = 0
    """Of that draw, and of the map."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    num_workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""


@dataclass
class WatchConfig:
    """Show the curves of a run in a browser while it trains, and stop it safely if asked to. A run
    that has not begun is waited for. Only browsers on this machine are answered."""

    port: int = 8765
    """Of the address; 0 for any that is free."""


@dataclass
class DemoConfig:
    """Pretrain SimCLR and WCL on handwritten digits and compare what a few labels then buy."""

    out: str = "runs/demo"
    """Folder for the two runs; a demo that was stopped goes on there."""
    epochs: int = 100
    """Passes over the 1,297 training images."""
    seed: int = 0
    """Of everything random."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""


@dataclass
class ReproduceConfig:
    """Make the runs behind a table of the paper and put our figures beside its own. A command that
    was stopped goes on when it is started again, and what is done is not done twice. The table is
    also written to OUT/NAME-SCALE.md and .json. --list shows the cells, what data they need and how
    long they might take here, and makes none."""

    scale: Literal["smoke", "digits", "cpu", "paper"] = "smoke"
    """smoke: seconds, made-up images, to see that it works; digits: minutes to hours on a CPU; cpu:
    hours to days on a CPU, CIFAR-10 for all; paper: the original settings, which want GPUs."""
    data: str = ""
    """The data set, as for `wcl pretrain`; if the table needs several, NAME=SRC,NAME=SRC. CIFAR is
    downloaded by itself."""
    out: str = "runs/reproduce"
    """Folder for all runs, results and tables; tables share the runs that they have in common."""
    seeds: int = 0
    """How many seeds each cell is made with, from 0 on; 0 for as many as is usual at the scale."""
    only: str = ""
    """Make only the rows and columns with this text in their names, and the rows that they are
    compared with. `batch 256 + 100 epochs` wants both in them."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    devices: int = 1
    """Processes to train with on this machine, as for `wcl pretrain`."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """Numbers the network computes in while it is pretrained."""
    micro_batch_size: int = 0
    """Images that pass through the network at a time, as for `wcl pretrain`; 0 for all."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch. On a busy machine 1 is faster."""
    num_workers: int = -1
    """Processes that decode photos; -1 chooses by the cores at hand."""
